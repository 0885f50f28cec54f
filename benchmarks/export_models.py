"""Exports networks of `transformers` configurations with random weights to ONNX files.

    pip install --target EXTRA transformers onnxscript
    PYTHONPATH=EXTRA python benchmarks/export_models.py FOLDER [--only NAME]...

Nothing is downloaded: every configuration is built here, reduced so that a file has less than 60 MB.  Shapes are fixed.
`FOLDER` gets the files of `benchmarks/compare_exports.toml`, one `NAME.onnx` each; those that are there already are
left alone.  It needs PyTorch, `transformers` and `onnxscript`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["NETWORKS", "Network", "export", "main"]

_OPSET = 18
_LARGEST = 60e6  # bytes
_NEEDED = ("torch", "transformers", "onnxscript")

_TEXT = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 8000,
}
_IMAGE = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "intermediate_size": 768}
_SPEECH = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}


class Network(NamedTuple):
    """A model class of `transformers`, the values of its configuration, and its inputs: shapes by name.

    `part` names the module of the model that is exported, such as "encoder".
    """

    name: str
    model: str
    config: Mapping[str, Any]
    inputs: Mapping[str, Sequence[int]]
    part: str = ""


def _text(name: str, model: str, tokens: int = 64, **config: Any) -> Network:
    return Network(name, model, {**_TEXT, **config}, {"input_ids": (1, tokens), "attention_mask": (1, tokens)})


def _decoder(name: str, model: str, tokens: int = 64, **config: Any) -> Network:
    return Network(name, model, {"use_cache": False, **config}, {"input_ids": (1, tokens)})


def _image(name: str, model: str, side: int = 224, **config: Any) -> Network:
    return Network(name, model, config, {"pixel_values": (1, 3, side, side)})


NETWORKS = (
    _text("bert", "BertModel"),
    _text("roberta", "RobertaModel"),
    _text("electra", "ElectraForSequenceClassification", embedding_size=128),
    _text("albert", "AlbertModel", embedding_size=128),
    _text("mpnet", "MPNetModel"),
    _text("squeezebert", "SqueezeBertModel", embedding_size=256),
    _text("deberta_v2", "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=32),
    _text("convbert", "ConvBertModel", embedding_size=256),
    Network(
        "funnel",
        "FunnelBaseModel",
        {"d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 1024, "block_sizes": [2, 2], "vocab_size": 8000},
        {"input_ids": (1, 64), "attention_mask": (1, 64)},
    ),
    Network(
        "distilbert",
        "DistilBertModel",
        {"dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024, "vocab_size": 8000},
        {"input_ids": (1, 64), "attention_mask": (1, 64)},
    ),
    _decoder("gpt2", "GPT2LMHeadModel", n_embd=256, n_layer=4, n_head=4, vocab_size=8000),
    _decoder("gpt_neox", "GPTNeoXForCausalLM", **_TEXT),
    _decoder("opt", "OPTForCausalLM", hidden_size=256, num_hidden_layers=4, num_attention_heads=4, ffn_dim=1024,
             vocab_size=8000, word_embed_proj_dim=256),
    _decoder("llama", "LlamaForCausalLM", **{**_TEXT, "num_key_value_heads": 2}),
    _decoder("qwen2", "Qwen2ForCausalLM", **{**_TEXT, "num_key_value_heads": 2}),
    _decoder("bloom", "BloomForCausalLM", hidden_size=256, n_layer=4, n_head=4, vocab_size=8000),
    Network(
        "t5_encoder",
        "T5EncoderModel",
        {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4, "vocab_size": 8000},
        {"input_ids": (1, 64), "attention_mask": (1, 64)},
    ),
    Network(
        "bart_encoder",
        "BartModel",
        {"d_model": 256, "encoder_layers": 4, "decoder_layers": 1, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "vocab_size": 8000},
        {"input_ids": (1, 64), "attention_mask": (1, 64)},
        "encoder",
    ),
    _image("vit", "ViTForImageClassification", **_IMAGE),
    _image("deit", "DeiTForImageClassification", **_IMAGE),
    _image("beit", "BeitModel", **_IMAGE),
    _image("dinov2", "Dinov2Model", 224, **{**_IMAGE, "patch_size": 14, "image_size": 224}),
    _image("swin", "SwinModel", embed_dim=48, depths=[2, 2, 4, 2], num_heads=[2, 4, 8, 16]),
    _image("resnet", "ResNetForImageClassification", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512],
           layer_type="basic", embedding_size=64),
    _image("mobilenet_v1", "MobileNetV1ForImageClassification"),
    _image("mobilenet_v2", "MobileNetV2ForImageClassification"),
    _image("mobilevit", "MobileViTForImageClassification", 256),
    _image("efficientnet", "EfficientNetForImageClassification", 224, width_coefficient=1.0, depth_coefficient=1.0,
           hidden_dim=1280, image_size=224),
    _image("regnet", "RegNetForImageClassification", embedding_size=32, hidden_sizes=[64, 128, 288, 672],
           depths=[1, 1, 4, 2], groups_width=16),
    _image("convnext", "ConvNextForImageClassification", hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 6, 2]),
    _image("convnext_v2", "ConvNextV2ForImageClassification", hidden_sizes=[40, 80, 160, 320], depths=[2, 2, 6, 2]),
    _image("poolformer", "PoolFormerForImageClassification"),
    _image("segformer", "SegformerForSemanticSegmentation", 256),
    _image("yolos", "YolosForObjectDetection", 256, **{**_IMAGE, "image_size": [256, 256], "num_detection_tokens": 50}),
    Network(
        "clip",
        "CLIPModel",
        {
            "text_config": {**_TEXT, "eos_token_id": 2},
            "vision_config": {**_IMAGE, "image_size": 224, "patch_size": 32},
            "projection_dim": 128,
        },
        {"input_ids": (1, 32), "pixel_values": (1, 3, 224, 224), "attention_mask": (1, 32)},
    ),
    Network(
        "whisper_encoder",
        "WhisperModel",
        {"d_model": 256, "encoder_layers": 4, "decoder_layers": 1, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "vocab_size": 8000,
         "max_source_positions": 500, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "decoder_start_token_id": 1},
        {"input_features": (1, 80, 1000)},
        "encoder",
    ),
    Network("wav2vec2", "Wav2Vec2Model", {**_SPEECH, "conv_dim": [256] * 7}, {"input_values": (1, 16000)}),
    Network("hubert", "HubertModel", {**_SPEECH, "conv_dim": [256] * 7}, {"input_values": (1, 16000)}),
    Network("ast", "ASTModel", {**_IMAGE, "max_length": 256, "num_mel_bins": 128}, {"input_values": (1, 256, 128)}),
    Network(
        "detr",
        "DetrForObjectDetection",
        {"d_model": 128, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "num_queries": 50,
         "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
         "backbone_config": {"model_type": "resnet", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512],
                             "layer_type": "basic", "embedding_size": 64, "out_features": ["stage4"]}},
        {"pixel_values": (1, 3, 256, 256)},
    ),
    Network(
        "patchtst",
        "PatchTSTForPrediction",
        {"num_input_channels": 7, "context_length": 512, "patch_length": 16, "patch_stride": 8, "prediction_length": 96,
         "d_model": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 256},
        {"past_values": (1, 512, 7)},
    ),
)  # fmt: skip


def export(network: Network, path: Path) -> None:
    """Write the network to `path`, whole or not at all.

    Raises:
        Exception: whatever `transformers` or the exporter raises; `ValueError` where the file is too large.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, network.model)
    model = kind(kind.config_class(**network.config)).eval()
    names = tuple(network.inputs)
    inputs = tuple(_value(name, shape) for name, shape in network.inputs.items())
    partial = path.with_suffix(".part")
    with torch.no_grad(), _quiet():
        _settle_norms(model, inputs, names)
        model = _Tensors(getattr(model, network.part) if network.part else model, names)
        torch.onnx.export(
            model, inputs, str(partial), dynamo=True, opset_version=_OPSET, external_data=False,
            input_names=list(names), verbose=False,
        )  # fmt: skip
    if (size := partial.stat().st_size) > _LARGEST:
        partial.unlink()
        raise ValueError(f"its file has {size / 1e6:.0f} MB, more than {_LARGEST / 1e6:.0f}")
    partial.replace(path)


def _settle_norms(model: Any, inputs: Sequence[Any], names: Sequence[str]) -> None:
    """Set the statistics of batch norms to those of a run, so that activations keep their size.

    Otherwise they shrink from layer to layer, to numbers so small that CPUs take many times as long for them.
    """
    import torch

    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        model(**{name: torch.cat([value, torch.randn_like(value)]) for name, value in zip(names, inputs, strict=True)})
    for norm in norms:
        norm.eval()


def _Tensors(model: Any, names: Sequence[str]) -> Any:  # noqa: N802 (a class that needs PyTorch)
    """The model with its inputs in order and only tensors as outputs, not those of its cache."""
    import torch

    class Tensors(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            found = self.model(**dict(zip(names, inputs, strict=True)), return_dict=True)
            return tuple(value for value in found.values() if isinstance(value, torch.Tensor))

    return Tensors().eval()


def _value(name: str, shape: Sequence[int]) -> Any:
    import torch

    if name == "input_ids":
        return torch.arange(shape[0] * shape[1]).reshape(tuple(shape)) % 1000 + 3
    return torch.ones(tuple(shape), dtype=torch.int64) if name == "attention_mask" else torch.randn(tuple(shape))


@contextlib.contextmanager
def _quiet() -> Any:
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def main() -> int:
    """Export what is missing and say what there is; the exit code is 1 if a file is missing afterwards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", default=[], choices=[network.name for network in NETWORKS])
    options = parser.parse_args()
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        print(f"{', '.join(missing)} is not installed: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    importlib.import_module("transformers").logging.set_verbosity_error()
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = [network for network in NETWORKS if not options.only or network.name in options.only]
    failed = 0
    for network in wanted:
        path = options.folder / f"{network.name}.onnx"
        if path.exists():
            continue
        try:
            export(network, path)
        except Exception as error:  # of one network; the others go on
            failed += 1
            said = (str(error).strip().splitlines() or [""])[0]
            print(f"{network.name}: cannot be exported: {type(error).__name__}: {said}", file=sys.stderr, flush=True)
    print(f"{options.folder}: {len(wanted) - failed} of {len(wanted)} files")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
