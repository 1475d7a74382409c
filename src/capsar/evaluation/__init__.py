"""Metrics of a `Predictor` (examples -> arrays): the network in training, or the analyzer."""
