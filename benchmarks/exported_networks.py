"""Networks of `transformers` configurations that `export_models.py` exports: classes, configurations and inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["FURTHER", "NETWORKS", "Network"]

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

_DETECTION: dict[str, Any] = {
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 512,
    "decoder_ffn_dim": 512,
    "num_queries": 50,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": {
        "model_type": "resnet",
        "depths": [2, 2, 2, 2],
        "hidden_sizes": [64, 128, 256, 512],
        "layer_type": "basic",
        "embedding_size": 64,
        "out_features": ["stage4"],
    },
}
_THREE_SCALES = {
    **_DETECTION,
    "backbone_config": {**_DETECTION["backbone_config"], "out_features": ["stage2", "stage3", "stage4"]},
}

FURTHER = (
    Network(
        "big_bird",
        "BigBirdModel",
        {**_TEXT, "attention_type": "original_full"},
        {"input_ids": (1, 64), "attention_mask": (1, 64)},
    ),
    Network("canine", "CanineModel", {**_TEXT, "num_attention_heads": 4}, {"input_ids": (1, 512)}),
    _text("mobilebert", "MobileBertModel", embedding_size=64, intra_bottleneck_size=64, intermediate_size=256),
    _text("roformer", "RoFormerModel", embedding_size=256),
    _text("ibert", "IBertModel"),
    _text(
        "modernbert", "ModernBertModel", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
    _text("esm", "EsmModel", pad_token_id=1, mask_token_id=4),
    _text("deberta", "DebertaModel", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    Network(
        "xlm",
        "XLMModel",
        {"emb_dim": 256, "n_layers": 4, "n_heads": 4, "n_words": 8000, "vocab_size": 8000},
        {"input_ids": (1, 64)},
    ),
    _text("nomic_bert", "NomicBertModel"),
    _text("layoutlm", "LayoutLMModel"),
    _decoder(
        "falcon", "FalconForCausalLM", hidden_size=256, num_hidden_layers=4, num_attention_heads=4, vocab_size=8000
    ),
    _decoder("phi", "PhiForCausalLM", **_TEXT),
    _decoder(
        "phi3",
        "Phi3ForCausalLM",
        **{**_TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    ),
    _decoder("gemma", "GemmaForCausalLM", **{**_TEXT, "num_key_value_heads": 2, "head_dim": 64}),
    _decoder("gemma2", "Gemma2ForCausalLM", **{**_TEXT, "num_key_value_heads": 2, "head_dim": 64}),
    _decoder("gemma3", "Gemma3ForCausalLM", **{**_TEXT, "num_key_value_heads": 2, "head_dim": 64}),
    _decoder("mistral", "MistralForCausalLM", **{**_TEXT, "num_key_value_heads": 2}),
    _decoder("qwen3", "Qwen3ForCausalLM", **{**_TEXT, "num_key_value_heads": 2, "head_dim": 64}),
    _decoder("mpt", "MptForCausalLM", d_model=256, n_layers=4, n_heads=4, vocab_size=8000),
    _decoder(
        "codegen",
        "CodeGenForCausalLM",
        n_embd=256,
        n_layer=4,
        n_head=4,
        vocab_size=8000,
        rotary_dim=32,
        n_positions=256,
    ),
    _decoder(
        "gptj", "GPTJForCausalLM", n_embd=256, n_layer=4, n_head=4, vocab_size=8000, rotary_dim=32, n_positions=256
    ),
    _decoder(
        "gpt_neo",
        "GPTNeoForCausalLM",
        hidden_size=256,
        num_layers=4,
        attention_types=[[["global", "local"], 2]],
        num_heads=4,
        vocab_size=8000,
        max_position_embeddings=256,
    ),
    _decoder("stablelm", "StableLmForCausalLM", **{**_TEXT, "num_key_value_heads": 2}),
    _decoder("olmo2", "Olmo2ForCausalLM", **{**_TEXT, "num_key_value_heads": 2}),
    _decoder("mamba", "MambaForCausalLM", hidden_size=256, num_hidden_layers=2, vocab_size=8000, tokens=16),
    _decoder("rwkv", "RwkvForCausalLM", hidden_size=256, num_hidden_layers=2, vocab_size=8000, tokens=16),
    _decoder("granite", "GraniteForCausalLM", **{**_TEXT, "num_key_value_heads": 2}),
    _decoder("smollm3", "SmolLM3ForCausalLM", **{**_TEXT, "num_key_value_heads": 2, "pad_token_id": 0}),
    _image("levit", "LevitForImageClassification"),
    _image("pvt_v2", "PvtV2ForImageClassification", hidden_sizes=[32, 64, 160, 256]),
    _image("focalnet", "FocalNetForImageClassification", embed_dim=48, depths=[1, 1, 2, 1]),
    _image(
        "swinv2",
        "Swinv2Model",
        256,
        embed_dim=48,
        depths=[1, 1, 2, 1],
        num_heads=[2, 4, 8, 16],
        window_size=8,
        image_size=256,
    ),
    _image(
        "swin2sr", "Swin2SRForImageSuperResolution", 64, embed_dim=60, depths=[2, 2], num_heads=[6, 6], image_size=64
    ),
    _image("hiera", "HieraModel", embed_dim=48, depths=[1, 1, 2, 1]),
    _image("hgnet_v2", "HGNetV2ForImageClassification"),
    _image("mobilevitv2", "MobileViTV2ForImageClassification", 256),
    _image(
        "depth_anything",
        "DepthAnythingForDepthEstimation",
        224,
        backbone_config={
            "model_type": "dinov2",
            "hidden_size": 192,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "image_size": 224,
            "patch_size": 14,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
            "reshape_hidden_states": False,
            "apply_layernorm": True,
        },
        reassemble_hidden_size=192,
        neck_hidden_sizes=[24, 48, 96, 192],
        fusion_hidden_size=32,
        head_hidden_size=16,
    ),
    _image(
        "dpt",
        "DPTForDepthEstimation",
        224,
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=768,
        image_size=224,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[24, 48, 96, 192],
        fusion_hidden_size=32,
        is_hybrid=False,
    ),
    _image("glpn", "GLPNForDepthEstimation", 224),
    Network(
        "sam_vision",
        "SamVisionModel",
        {
            "hidden_size": 192,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "image_size": 256,
            "global_attn_indexes": [1, 3],
            "mlp_dim": 768,
            "window_size": 7,
        },
        {"pixel_values": (1, 3, 256, 256)},
    ),
    _image(
        "vitdet",
        "VitDetModel",
        224,
        hidden_size=192,
        num_hidden_layers=4,
        num_attention_heads=3,
        window_block_indices=[0, 2],
        window_size=7,
        use_relative_position_embeddings=True,
    ),
    _image("data2vec_vision", "Data2VecVisionModel", **_IMAGE),
    _image("dinov3", "DINOv3ViTModel", 224, **_IMAGE),
    _image("siglip_vision", "SiglipVisionModel", 224, **_IMAGE),
    _image("swiftformer", "SwiftFormerForImageClassification"),
    Network("table_transformer", "TableTransformerForObjectDetection", _DETECTION, {"pixel_values": (1, 3, 256, 256)}),
    Network("conditional_detr", "ConditionalDetrForObjectDetection", _DETECTION, {"pixel_values": (1, 3, 256, 256)}),
    Network(
        "deformable_detr",
        "DeformableDetrForObjectDetection",
        {**_THREE_SCALES, "num_feature_levels": 3},
        {"pixel_values": (1, 3, 256, 256)},
    ),
    Network("superpoint", "SuperPointForKeypointDetection", {}, {"pixel_values": (1, 3, 128, 128)}),
    Network(
        "videomae",
        "VideoMAEModel",
        {**_IMAGE, "num_frames": 4, "image_size": 112},
        {"pixel_values": (1, 4, 3, 112, 112)},
    ),
    Network(
        "timesformer",
        "TimesformerModel",
        {**_IMAGE, "num_frames": 4, "image_size": 112},
        {"pixel_values": (1, 4, 3, 112, 112)},
    ),
    Network(
        "vivit", "VivitModel", {**_IMAGE, "num_frames": 4, "image_size": 112}, {"pixel_values": (1, 4, 3, 112, 112)}
    ),
    _image(
        "upernet",
        "UperNetForSemanticSegmentation",
        256,
        backbone_config={
            "model_type": "convnext",
            "hidden_sizes": [32, 64, 128, 256],
            "depths": [1, 1, 2, 1],
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
        },
        hidden_size=64,
        auxiliary_in_channels=128,
        auxiliary_channels=32,
    ),
    Network("wavlm", "WavLMModel", {**_SPEECH, "conv_dim": [128] * 7}, {"input_values": (1, 16000)}),
    Network("sew", "SEWModel", {**_SPEECH, "conv_dim": [64] * 13}, {"input_values": (1, 16000)}),
    Network("unispeech", "UniSpeechModel", {**_SPEECH, "conv_dim": [128] * 7}, {"input_values": (1, 16000)}),
    Network("data2vec_audio", "Data2VecAudioModel", {**_SPEECH, "conv_dim": [128] * 7}, {"input_values": (1, 16000)}),
    Network(
        "wav2vec2_conformer", "Wav2Vec2ConformerModel", {**_SPEECH, "conv_dim": [128] * 7}, {"input_values": (1, 16000)}
    ),
    Network(
        "wav2vec2_bert",
        "Wav2Vec2BertModel",
        {**_SPEECH, "feature_projection_input_dim": 160},
        {"input_features": (1, 100, 160)},
    ),
    Network(
        "speech_to_text",
        "Speech2TextModel",
        {
            "d_model": 256,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "vocab_size": 8000,
        },
        {"input_features": (1, 200, 80)},
        "encoder",
    ),
    Network(
        "dac",
        "DacModel",
        {"encoder_hidden_size": 16, "decoder_hidden_size": 128, "hidden_size": 256},
        {"input_values": (1, 1, 8192)},
    ),
    Network(
        "univnet",
        "UnivNetModel",
        {"model_hidden_channels": 16},
        {"input_features": (1, 20, 100), "noise_sequence": (1, 20, 64)},
    ),
    Network(
        "moonshine",
        "MoonshineModel",
        {
            "hidden_size": 144,
            "encoder_num_hidden_layers": 3,
            "decoder_num_hidden_layers": 1,
            "intermediate_size": 576,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
        },
        {"input_values": (1, 16000)},
        "encoder",
    ),
    Network(
        "patchtsmixer",
        "PatchTSMixerForPrediction",
        {
            "num_input_channels": 7,
            "context_length": 512,
            "patch_length": 16,
            "patch_stride": 16,
            "prediction_length": 96,
            "d_model": 64,
        },
        {"past_values": (1, 512, 7)},
    ),
)
"""Networks that nothing was built for."""
