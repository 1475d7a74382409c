"""Tensors -> tensors: the network of the paper, on torch.

Shapes are written with these letters, everywhere: `B` batch, `T` words, `E` embedding, `H` encoder
hidden, `N` primary capsules, `J` intermediate capsules, `P` primary dim, `C` classes, `D`
class-capsule dim.
"""
