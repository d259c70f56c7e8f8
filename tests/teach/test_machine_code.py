"""data/results/machine-code.json has the kernels of the lessons, as NVRTC compiles them."""

import pytest

from dynconv.lab import ledger
from dynconv.lab.nvidia import nvdisasm, nvrtc
from dynconv.teach.checkout import require_checkout
from dynconv.teach.machine_code import (
    KERNELS,
    hash_source,
    leave_out_slow_paths,
    measure,
    source_of,
    strings_of,
)

RECORD = ledger.read("machine-code")
PAIRS = [(lesson, kernel) for lesson, kernels in KERNELS.items() for kernel in kernels]


# As nvdisasm writes it, shortened: a branch over a load, and one over the call of a division.
DIVISION = """
.L_x_0:
        /*0000*/          @P0 BRA `(.L_x_1) ;             /* 0x0000000000240947 */
                                                          /* 0x000fea0003800000 */
        /*0010*/          LDG.E R0, [R2] ;                /* 0x0000000402007981 */
                                                          /* 0x000ea2000c1e1900 */
.L_x_1:
        /*0020*/          FCHK P1, R0, R3 ;               /* 0x0000000300007302 */
                                                          /* 0x000e220000020000 */
        /*0030*/          @!P1 BRA `(.L_x_2) ;            /* 0x0000000000247947 */
                                                          /* 0x000fea0003800000 */
        /*0040*/          MOV R8, 0x60 ;                  /* 0x0000006000087802 */
                                                          /* 0x000fce0000000f00 */
        /*0050*/          CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_ftz_f32_slowpath) ;
                                                          /* 0x0000000000007944 */
.L_x_2:
        /*0060*/          BSYNC B1 ;                      /* 0x0000000000017941 */
                                                          /* 0x000fea0003800000 */
        /*0070*/          @P2 BRA `(.L_x_0) ;             /* 0x0000000000240947 */
                                                          /* 0x000fea0003800000 */
"""


def why_not_comparable() -> str | None:
    """Why this machine cannot repeat the record."""
    if reason := nvrtc.why_unavailable() or nvdisasm.why_unavailable():
        return reason
    recorded = RECORD["versions"]["nvrtc"]
    return None if nvrtc.version() == recorded else f"the record is of NVRTC {recorded}"


def test_strings_are_found_through_names_sums_and_replacements(monkeypatch, tmp_path):
    monkeypatch.setattr("dynconv.teach.machine_code.require_checkout", lambda: tmp_path)
    (tmp_path / "lessons").mkdir()
    cell = (
        '```{code-cell}\nA = "a"\nB = A + "b"\nC = A\nC += "c"\nD = B.replace("b", A)\nn = 1\n```\n'
    )
    (tmp_path / "lessons" / "00_try.md").write_text(cell)
    assert strings_of("00_try") == {"A": "a", "B": "ab", "C": "ac", "D": "aa"}


def test_the_slow_path_of_a_division_is_left_out():
    (loop,) = nvdisasm.innermost_loops(DIVISION)
    (usual,) = nvdisasm.innermost_loops(leave_out_slow_paths(DIVISION))
    left_out = [line for line in loop.code if line not in usual.code]
    assert [line.split()[0] for line in left_out] == ["MOV", "CALL.REL.NOINC"]
    assert len(usual.control) == usual.instructions == 6  # with the load and both branches
    lines = [line for entry in RECORD["numbers"].values() for line in entry["loop"]]
    assert not any("slowpath" in line for line in lines)


@pytest.mark.parametrize(("lesson", "kernel"), PAIRS)
def test_the_lesson_still_has_the_kernel_of_the_record(lesson, kernel):
    assert RECORD["numbers"][kernel]["source"] == hash_source(source_of(lesson, kernel))


def test_the_record_has_no_other_kernels():
    assert RECORD["numbers"].keys() == {kernel for _, kernel in PAIRS}


@pytest.mark.skipif(bool(why_not_comparable()), reason=str(why_not_comparable()))
@pytest.mark.parametrize(("lesson", "kernel"), PAIRS)
def test_the_record_is_what_nvrtc_makes(lesson, kernel):
    assert measure(lesson, kernel) == RECORD["numbers"][kernel]


def select_rows(operator: str, direction: str) -> list[dict]:
    """Return the predictions for the batch of lessons 18 to 21, in float32."""
    want = {"operator": operator, "direction": direction, "dtype": "float32"}
    want |= {"B": 10, "T": 1000, "C": 1024, "K": 31}
    rows = ledger.read("kernels-predicted")["numbers"]["rows"]
    return [row for row in rows if want.items() <= row.items()]


def test_the_floors_that_lesson_20_compares():
    text = (require_checkout() / "lessons/20_dynamicconv_kernels.md").read_text(encoding="utf-8")
    assumed = ledger.read("kernels-predicted")["numbers"]["assumed"]
    numbers, weights = 10 * 1000 * 1024, 10 * 1000 * 16 * 31
    copy = 8 * numbers / assumed["copy_bytes_per_s"]  # seconds
    one = 4 * weights / (8 * numbers)  # a number per weight, in copies
    warps, issued = weights / (8 * 31), 4 * assumed["multiprocessors"] * assumed["clock_hz"]
    names = "dynamic_tile", "dynamic_dry", "dynamic_fused"
    executed = [RECORD["numbers"][name]["executed"] for name in names]
    tile, dry, fused = [warps * count / issued / copy for count in executed]
    assert executed == [1422, 1332, 1332 + 276]
    floors = {
        "separate operators, all bytes from DRAM": (tile + 2 * one, tile + 4.25 * one),
        "separate operators, if L2 keeps logits, $p$ and weights": (tile + one, tile + 2.25 * one),
        "our kernel": (dry, fused),
    }
    assert f"`dynamic_tile` instructions ({tile:.2f} copies)" in text
    for row, (inference, training) in floors.items():
        assert f"| {row} | {inference:.2f} | {training:.2f} |" in text
    *separate, ours = floors.values()
    lower = [a - b for row in separate for a, b in zip(row, ours, strict=True)]
    assert f"lower floor, by {min(lower):.1f} to {max(lower):.1f} copies" in text
    ideal = 1 + one, 1 + 2.25 * one
    assert "Then the floor is 0.1 copies below ours" in text
    saved = [a - b for a, b in zip(ours, ideal, strict=True)]
    assert [round(copies, 1) for copies in saved] == [0.1, 0.1]
    assert f"at most {1e6 * copy * max(saved):.1f} µs, which the extra launch" in text
    most = dry - one, fused - 2.25 * one  # a convolution that takes longer loses
    assert f"= {most[0]:.2f} copies ({most[1]:.2f} in training)" in text
    (ready,) = select_rows("dynamic_conv", "forward")
    shared, loop = ready["us"]["shared"], ready["us"]["issue"]
    assert f"its L1 takes {shared:.1f} and its loop's instructions {loop:.1f} µs" in text
    assert max(shared, loop) < ready["us"]["bytes"]
    assert copy * max(saved) < assumed["launch_s"]
    assert 1 + 3 * one > dry and 1 + 5.25 * one > fused  # ideal, but all from DRAM
    turn, softmax = (RECORD["numbers"][name]["instructions"] for name in (names[1], "softmax_four"))
    assert (38 * turn / 4, softmax) == (845.5, 219)


def test_the_prediction_and_the_backward_floors_that_lesson_20_quotes():
    text = (require_checkout() / "lessons/20_dynamicconv_kernels.md").read_text(encoding="utf-8")
    assumed = ledger.read("kernels-predicted")["numbers"]["assumed"]
    copy = 1e6 * 8 * 10_240_000 / assumed["copy_bytes_per_s"]
    (row,) = select_rows("softmax_conv", "forward")
    expected = row["expected_us"]
    assert f"expects only {expected:.0f} µs or {expected / copy:.1f} copies" in text
    (fused,) = select_rows("softmax_conv", "backward")
    (ready,) = select_rows("dynamic_conv", "backward")
    assert (fused["launches"], ready["launches"]) == (2, 1)
    weights = 4 * 4_960_000  # bytes
    separate = (ready["bytes"] + 5.25 * weights) / (8 * 10_240_000)  # with dropout and softmax
    assert f"their L1 {fused['us']['shared'] / copy:.1f}. Separate operators move" in text
    assert f"Separate operators move {separate:.1f}, because one kernel" in text


def test_the_instructions_that_lesson_21_states():
    text = (require_checkout() / "lessons/21_talk_kernels.md").read_text(encoding="utf-8")
    predicted = ledger.read("kernels-predicted")["numbers"]
    own, channels = RECORD["numbers"]["walk_ahead"], 4
    (package,) = (
        row["instructions"]
        for row in predicted["kernels"]
        if row["kernel"] == f"talk_conv<float, {channels}, 1024>"
    )
    arithmetic = sum(any(op in line for op in ("FADD", "FFMA", "FMUL")) for line in own["loop"])
    each = round(own["instructions"] / 8), arithmetic // 8  # in a turn of eight outputs
    shared = package - 6 * channels
    assert f"`walk_ahead`'s {each[0]} instructions per output, only {each[1]} are" in text
    assert f"spends only {shared} instructions per position on addresses" in text
    sum_of_both = f"$({shared} + {channels} \\cdot 6) / {channels}"
    assert f"{sum_of_both} \\approx {package / channels:.0f}$ instructions" in text


def test_the_bet_of_lesson_21():
    text = (require_checkout() / "lessons/21_talk_kernels.md").read_text(encoding="utf-8")
    predicted = ledger.read("kernels-predicted")["numbers"]
    assumed, row = predicted["assumed"], 10 * 1024 * 4  # bytes of a word in all sentences
    copy = 1e6 * 2 * 1000 * row / assumed["copy_bytes_per_s"]

    # Turn n of a stretch requests its words 8 n + 8 to 8 n + 15, and stores eight outputs if n > 3.
    T, stretch, shared, passed = 1000, 128, 40, []
    starts = range(0, T, stretch)
    for word in range(shared):  # the next stretch's, which this one requests 128 words later
        between = [b - 17 + s for b in starts for s in range(word, word + stretch)]
        loads = [t for t in between if 0 <= t < T]
        outputs = 8 * (word // 8 + 15 - 4)
        stores = [t for b in starts for t in range(b, b + outputs) if t < T]
        assert len(loads) == len(set(loads))  # none twice
        passed.append((len(loads) + len(stores)) * row / 1e6)
    assert (round(min(passed), -1), round(max(passed), -1)) == (70, 80)
    assert "70 to 80 MB pass through its 60 MB" in text

    twice = (len(starts) - 1) * shared
    assert f"$7 \\cdot {shared}$ of 1,000 words are read twice" in text and twice == 7 * shared
    total = (2 * T + twice) * row + 2 * 10 * T * 16 * 4  # with the offsets
    alone, waits = 1e6 * total / 3.17e12, 1e6 * 6 * 834 / assumed["clock_hz"]
    assert f"{total / 1e6:.0f} MB in all" in text
    assert f"they take {alone:.0f} µs, {alone / copy:.1f} copies" in text
    assert f"\\cdot 0.42 = {waits:.1f}$ µs, which makes {alone + waits:.0f}." in text
    bet = f"{(alone + waits) / copy:.1f}"
    assert f"**So we bet on {bet} copies.**" in text and f"and we bet on {bet}, because" in text


def test_the_predictions_that_lesson_21_quotes():
    text = (require_checkout() / "lessons/21_talk_kernels.md").read_text(encoding="utf-8")
    rate = ledger.read("kernels-predicted")["numbers"]["assumed"]["copy_bytes_per_s"]
    (talk,), (light,) = (select_rows(name, "forward") for name in ("talk_conv", "light_conv"))
    expected, copy = talk["expected_us"], 1e6 * 8 * 10_240_000 / rate
    said = f"it expects {expected:.0f} µs, {expected / copy:.1f} copies"
    assert f"With 2.5 µs for the launch, {said}" in text

    def in_turns(row):
        return sum(row["us"][limit] for limit in ("bytes", "shared", "issue"))

    # Neighbouring stretches share 15 words to each side, and eight that are requested ahead.
    again = 1e6 * 7 * (15 + 15 + 8) * 10 * 1024 * 4 / rate
    turns = f"LightConv would need {in_turns(light):.0f} µs and TaLK {in_turns(talk):.0f}"
    assert f"{turns}, or {in_turns(talk) + again:.0f} if L2 drops its borders" in text
