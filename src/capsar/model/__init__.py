"""The CAPSAR network of the paper (Xu et al., arXiv 1912.10785), in torch.

Letters of the shape comments: `B` batch, `T` tokens (words or subwords), `W` words, `M` mentions of
the aspect, `E` embedding, `H` encoder hidden, `N` primary capsules, `J` intermediate capsules, `P`
child-capsule dim, `C` parent capsules or classes, `D` parent-capsule dim.
"""
