"""Partition: which nodes of an ONNX graph run as compiled regions, and which stay with onnxruntime."""
