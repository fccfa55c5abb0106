"""Argument types that several commands share, each with the metavar that --help prints for its value."""

from pathlib import Path
from typing import Annotated

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

RunArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
TextArguments = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT ...]")]
FileFlag = Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")]
ColumnsFlag = Annotated[str, tyro.conf.arg(metavar="ROLE=COLUMN,...")]
DirectoryFlag = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
NAME_REGISTRY = ConstructorRegistry()  # prints NAME, not STR, for strings: the text settings of a run are all names


@NAME_REGISTRY.primitive_rule
def _name_spec(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    if info.type is not str:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME",
        instance_from_str=lambda args: args[0],
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
    )
