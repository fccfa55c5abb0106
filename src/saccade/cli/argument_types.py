"""Argument types that several commands share, each with the metavar that --help prints for its value."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def optional_argument(value_name: str, **options: Any) -> Any:
    """An optional argument whose help describes its default, so that --help adds no `(default: '')`."""
    return tyro.conf.arg(metavar=value_name, help_behavior_hint="", **options)


RunArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
TextArguments = Annotated[tuple[str, ...], tyro.conf.Positional, optional_argument("[TEXT ...]")]
FileFlag = Annotated[tuple[str, ...], optional_argument("FILE")]
ColumnsFlag = Annotated[str, optional_argument("ROLE=COLUMN,...")]
DirectoryFlag = Annotated[Path | None, optional_argument("DIR")]
NAME_REGISTRY = ConstructorRegistry()  # prints the metavar NAME for strings: every string setting of a run is a name


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
