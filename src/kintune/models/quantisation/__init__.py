"""Quantises an fp32 ONNX model with onnxruntime's quantiser, layer by layer within an error budget."""
