"""Choose the files of this folder from the full set: python tests/golden/make.py FULL_SET"""

import json
import re
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CHOSEN = """
lightconv_T12_*_K1_P0_sm0_bias1         lightconv_T1_*_sm1_bias1
lightconv_T2_*_K7_P[36]_sm1_bias0       lightconv_T2_*_K7_P6_sm0_bias1
lightconv_T7_*_H1_K5_P[24]_sm1_bias1    lightconv_T7_*_H8_K3_P1_sm1_bias0
lightconv_T7_*_H8_K3_P2_sm0_bias0       lightconv_T7_*_H2_K3_P[12]_sm1_bias1
lightconv_T9_*_P[48]_sm0_bias0          lightconv_T40_*_P15_sm1_bias0
lightconv_T33_*_P6_sm1_bias1            lightconv_T5_*_K31_P30_sm1_bias0
lightconv_asym_*                        lightconv_float32_*
lightconv_bct_interleaved_T7_*          lightconv_incremental_T6_*_K3_sm1
lightconv_incremental_T6_*_K1_sm0       lightconv_incremental_T5_*_sm0
dynamicconv_T1_*_sm1_bias1              dynamicconv_T2_*_P3_sm1_bias0
dynamicconv_T2_*_P6_sm[01]_bias1        dynamicconv_T7_*_H1_K5_P4_sm0_bias0
dynamicconv_T7_*_H8_K3_P1_sm1_bias0     dynamicconv_T7_*_H2_K3_P[12]_sm1_bias1
dynamicconv_T9_*_K1_P0_sm1_bias1        dynamicconv_T9_*_K9_P8_sm0_bias0
dynamicconv_op_T1_*_P1                  dynamicconv_op_T[46]_*
dynamicconv_query_*_K3_*                dynamicconv_inproj_*_K3_*
dynamicconv_renorm_*_P[18]              dynamicconv_incremental_T[56]_*_renorm0
talk_???_op_T6_*                        talk_???_op_T7_B2_H4_*_random
talk_???_op_T7_B2_H4_*_integer          talk_???_op_T9_*_over
talk_???_op_T1_B1_*_over                talk_???_op_T8_*_random
talk_module_???_T[57]_*                 convtbc_*_K1_P0
convtbc_*_K3_P1                         convtbc_*_K5_P2
linearized_*                            weightnorm_*
fconv_attention_*                       fconv_model_basic_leftpad
fconv_model_evenk_rightpad              fconv_model_proj_nopad
fconv_model_resid_leftpad               lightconv_model_lightweight_glu1_prenorm0_nopad
lightconv_model_dynamic_glu0_prenorm1_rightpad
lr_*_iwslt                              lr_*_wmt*
sinusoidal_d[78]_*                      make_positions
label_smoothed_nll                      adaptive_input_softmax
compound_split
"""
# What no test reads, and what is not a number.
LEFT_OUT = re.compile(r"buffer_\d+|S|grad_S|.*\._float_tensor|.*\.version")
WORDS = {"layout", "path", "note", "offset_grad_note", "formula", "regex", "head_of_channel"}

if __name__ == "__main__":
    full = Path(sys.argv[1])
    for old in HERE.glob("*.npz"):
        old.unlink()
    for pattern in CHOSEN.split():
        found = list(full.glob(f"{pattern}.npz"))
        assert found, f"no file {pattern}.npz"
        for file in found:
            arrays = {k: z for k, z in np.load(file).items() if not LEFT_OUT.fullmatch(k)}
            meta = json.loads(str(arrays["meta"]))
            arrays["meta"] = np.array(json.dumps({k: meta[k] for k in meta if k not in WORDS}))
            np.savez_compressed(HERE / file.name, **arrays)
