"""Metrics of the experiments that users do not need: detection, faithfulness, gradients."""
