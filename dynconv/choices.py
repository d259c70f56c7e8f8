"""The values that some entries of recipes, commands and operators allow, as types."""

from typing import Literal

VocabularyKind = Literal["bytes", "bpe", "words"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Normalization = Literal[
    "softmax", "none", "sigmoid", "tanh", "l1", "l2", "power2", "abs", "abs_l1", "abs_l2"
]
"""the rows of Table 6 of Wu et al. 2019 (`dynconv.ops.normalize_kernel`)"""
Activation = Literal["relu", "swish"]
"""the nonlinearity of a feed-forward module (`ACTIVATIONS` of `dynconv.models.blocks`)"""
