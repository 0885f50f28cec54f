"""Exports of a `.kt` file: to C and C++, to a Python wheel, to onnxruntime.  No module here imports TVM."""
