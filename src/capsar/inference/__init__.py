"""Inference: from text to predictions, with ONNX Runtime and without torch."""
