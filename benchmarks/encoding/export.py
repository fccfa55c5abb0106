"""Export of a BERT to ONNX: plain and with a fused graph, in float32 and int8. `quant_pre_process` fails on exported files, so
the graph is fused first, which is also the fastest configuration of ONNX Runtime."""

import warnings
from pathlib import Path
from typing import Any

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
FILES = {  # engine -> file
    "onnxruntime float32": "plain.onnx",
    "onnxruntime int8": "plain-int8.onnx",
    "onnxruntime int8, fused": "fused-int8.onnx",
    "onnxruntime int8, fused, per channel": "fused-int8-channel.onnx",
}


def export(model: Path, folder: Path) -> None:
    """Write all files into a folder, unless they are there."""
    if all((folder / name).exists() for name in FILES.values()):
        return
    warnings.simplefilter("ignore")
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    folder.mkdir(parents=True, exist_ok=True)
    sample = tuple(torch.ones(2, 7, dtype=torch.int64) for _ in INPUTS)
    size = _trace(model, sample, folder / "plain.onnx", dynamo=True)
    quantize_dynamic(folder / "plain.onnx", folder / "plain-int8.onnx", weight_type=QuantType.QInt8)
    _trace(model, sample, folder / "traced.onnx", dynamo=False)
    fused = optimizer.optimize_model(str(folder / "traced.onnx"), model_type="bert", opt_level=0, **size)
    fused.save_model_to_file(str(folder / "fused.onnx"))
    for name, per_channel in (("fused-int8.onnx", False), ("fused-int8-channel.onnx", True)):
        quantize_dynamic(
            folder / "fused.onnx",
            folder / name,
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )


def _trace(model: Path, sample: tuple[Any, ...], path: Path, *, dynamo: bool) -> dict[str, int]:
    """Export the model by one of the two exporters; returns its sizes, as the optimizer calls them."""
    import torch
    from transformers import AutoModel

    # the graph optimizer knows the attention of the eager implementation
    body = AutoModel.from_pretrained(model, attn_implementation="sdpa" if dynamo else "eager").eval()

    class HiddenStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, input_ids, attention_mask, token_type_ids):
            given = dict(zip(INPUTS, (input_ids, attention_mask, token_type_ids), strict=True))
            return self.body(**given).last_hidden_state

    names: dict[str, Any] = {"input_names": list(INPUTS), "output_names": ["hidden"]}
    if dynamo:
        axes = {0: torch.export.Dim("batch", min=1, max=512), 1: torch.export.Dim("length", min=2, max=512)}
        torch.onnx.export(HiddenStates(), sample, str(path), dynamo=True, dynamic_shapes=(axes,) * 3, **names)
    else:
        axes = {name: {0: "batch", 1: "length"} for name in (*INPUTS, "hidden")}
        torch.onnx.export(HiddenStates(), sample, str(path), dynamo=False, opset_version=17, dynamic_axes=axes, **names)
    return {"num_heads": body.config.num_attention_heads, "hidden_size": body.config.hidden_size}
