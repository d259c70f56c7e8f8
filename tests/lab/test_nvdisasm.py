"""The instructions of compiled loops are counted, and it is said where no disassembler is."""

import pytest

from dynconv.lab.nvidia import nvdisasm, nvrtc
from dynconv.lab.nvidia.nvdisasm import Loop

LOOPS = """
__global__ void loops(float* x, int n) {
    for (int i = 0; i < n; ++i) {
        #pragma unroll 1
        for (int j = 0; j < n; ++j) x[j] = x[i] * x[j] + 3;
        #pragma unroll 1
        for (int j = 1; j < n; ++j) x[j] = (x[j - 1] * x[j] + 3) * x[j] + 2;
    }
}
__global__ void straight(float* x) { x[0] = x[1] * x[2] + x[3]; }
"""
# As nvdisasm writes it, shortened: a loop in a loop, a jump forward, and where a kernel ends.
SECTION = """
.L_x_0:
        /*0000*/              @!P0 BRA `(.L_x_2) ;
.L_x_1:
        /*0010*/                   FFMA R0, R1, R2, R3 ;
        /*0020*/              @!PT LDS RZ, [RZ] ;
        /*0030*/          @P0  BRA `(.L_x_1) ;
.L_x_2:
        /*0040*/                   DFMA R0, R1, R2, R3 ;
        /*0050*/              @UP0 BRA `(.L_x_0) ;
.L_x_3:
        /*0060*/                   BRA `(.L_x_3);
"""
# With the code: two loads that release scoreboard 0, or none, and an addition that waits for it.
ENCODED = """
.L_x_0:
        /*0000*/          LDS R34, [R9] ;                 /* 0x0000000009227984 */
                                                          /* 0x000fe80000000800 */
        /*0010*/          @P0 LDS R35, [R35] ;            /* 0x0000000023230984 */
                                                          /* 0x000e240000000800 */
        /*0020*/          @P0 FADD.FTZ R36, -R34, R35 ;   /* 0x0000002322240221 */
                                                          /* 0x001fc80000010100 */
        /*0030*/          @P0 BRA `(.L_x_0) ;             /* 0x0000000000240947 */
                                                          /* 0x000fea0003800000 */
"""


def test_the_loops_of_a_listing():
    loops = nvdisasm.innermost_loops(SECTION)
    counts = [(loop.instructions, loop.multiply_adds, loop.around) for loop in loops]
    assert counts == [(3, 1, 4), (1, 0, 6)]
    assert nvdisasm.main_loop(SECTION) == loops[0] and loops[0].count("LDS", "FADD") == 1


def test_a_warp_is_followed_through_its_branches():
    code = SECTION.replace("BRA `(.L_x_3)", "EXIT").replace("DFMA R0, R1, R2, R3", "NOP")
    assert nvdisasm.count_executed(code, {}) == 6  # all but the NOP, once
    assert nvdisasm.count_executed(code, {0x30: 2}) == 6 + 2 * 3
    assert nvdisasm.count_executed(code, {0: 1}) == 6 - 3
    assert nvdisasm.count_executed(code, {0x30: 2, 0x50: 1}) == 6 + 2 * 3 + 5
    with pytest.raises(ValueError, match="16"):
        nvdisasm.count_executed(code, {0x10: 1})  # no branch


def test_the_pauses_and_the_path_of_a_loop():
    (loop,) = nvdisasm.innermost_loops(ENCODED)
    controls = [tuple(control) for control in loop.control]
    assert controls == [(4, 7, 0), (2, 0, 0), (4, 7, 1), (5, 7, 0)]  # stall, sets, waits
    assert loop.pauses == loop.path(0) == 4 + 2 + 4 + 5
    assert loop.path(1) == loop.path(2) == loop.pauses  # the pause hides the load
    assert loop.path(30) == 4 + 30 + 4 + 5  # the second load leaves in cycle 4
    (constants,) = nvdisasm.innermost_loops(ENCODED.replace("LDS", "LDC"))
    assert constants.path(30) == loop.path(30)


def test_when_a_loop_issues_its_loads_and_needs_their_results():
    (loop,) = nvdisasm.innermost_loops(ENCODED.replace("LDS", "LDG"))
    assert loop.cycles(30) == [0, 4, 6, 10, 15]
    assert loop.requests(30) == [(0, 15), (4, 6)]  # nothing waits for the first


@pytest.mark.skipif(bool(nvrtc.why_unavailable()), reason=str(nvrtc.why_unavailable()))
@pytest.mark.skipif(bool(nvdisasm.why_unavailable()), reason=str(nvdisasm.why_unavailable()))
def test_the_loop_with_the_most_multiply_adds():
    compiled = nvrtc.compile_program(LOOPS, ["loops", "straight"], "sm_90")
    found = nvdisasm.main_loops(compiled)
    assert found["loops"].multiply_adds == 2 and 6 <= found["loops"].instructions < 30
    assert found.get("straight", Loop([])).multiply_adds == 0  # it ends in a jump to itself


def test_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        nvdisasm, "find_nvdisasm", nvdisasm.find_nvdisasm.__wrapped__
    )  # not what is in the cache
    monkeypatch.setattr(nvdisasm, "PACKAGE", "nowhere")
    monkeypatch.setattr(nvdisasm.shutil, "which", lambda name: None)
    assert nvdisasm.why_unavailable() == "no nvdisasm: 'pip install nowhere' brings it, on Linux"
