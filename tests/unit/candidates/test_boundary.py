"""Which boundaries are worth a trial: from a diagnosis to candidates with regions."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.candidates.boundaries import blocks, gpt2, layers, part, stop, unet

from compilot.candidates import boundary
from compilot.candidates.parts import covered, cut, paths_of, with_breaks
from compilot.engines.space import Acts, Knob, Variation
from compilot.records import Candidate, Diagnosis, Precision, Region, Settings, Shapes, UnfitPart

INDUCTOR = Settings(engine="inductor")
OPENVINO = Settings(engine="openvino")


def titles(pieces: object) -> list[str]:
    return [piece.title for piece in pieces]  # type: ignore[attr-defined]


def of(diagnosis: Diagnosis, settings: Settings = INDUCTOR, **how: bool) -> list[Candidate]:
    found = boundary.seeds(diagnosis, exports_only=False, **how)
    return [boundary.regional(seed.pieces, settings, seed.why, diagnosis) for seed in found]


# ------------------------------------------------------------------------------------------------------------ the cut


def test_a_cut_goes_into_what_stands_around_repeated_blocks_and_not_into_the_blocks() -> None:
    pieces = cut(gpt2())
    assert titles(pieces) == ["12 x Block", "head"]
    assert pieces[0].share == pytest.approx(0.8)
    assert pieces[0].one == pytest.approx(0.8 / 12)


def test_a_cut_goes_around_a_break_and_takes_what_is_left_of_the_block_that_has_it() -> None:
    diagnosis = gpt2(breaks=(stop("model.h.5.attn"),))
    pieces = cut(diagnosis, with_breaks(diagnosis, exports_only=True))
    assert titles(pieces) == ["11 of 12 x Block", "head", "model.h.5.mlp"]
    assert "model.h.5" not in pieces[0].paths


def test_a_break_in_the_models_own_forward_leaves_every_block_whole() -> None:
    diagnosis = gpt2(breaks=(stop(""),))
    assert titles(cut(diagnosis, with_breaks(diagnosis, exports_only=True))) == ["12 x Block", "head"]


def test_breaks_that_do_not_stop_an_export_stop_no_export() -> None:
    diagnosis = gpt2(breaks=(stop("model.h.0", exports=False),))
    assert titles(cut(diagnosis, with_breaks(diagnosis, exports_only=True)))[0] == "12 x Block"
    assert titles(cut(diagnosis, with_breaks(diagnosis, exports_only=False)))[0] == "11 of 12 x Block"


def test_submodules_that_cannot_be_regions_are_left_out_of_the_pieces_of_the_engines_concerned() -> None:
    unfit = (
        UnfitPart(path="model.h.0", why="called in several ways"),
        UnfitPart(path="head", why="goes in steps of 8", exports_only=True),
    )
    diagnosis = msgspec.structs.replace(gpt2(), unfit=unfit)
    both = [{p.title for p in cut(diagnosis, with_breaks(diagnosis, exports_only=only))} for only in (False, True)]
    assert "11 of 12 x Block" in both[0] & both[1]
    assert ("head" in both[0], "head" in both[1]) == (True, False)
    assert not with_breaks(diagnosis, exports_only=True)("")  # it stops no whole model


def test_a_block_that_the_example_never_calls_is_in_no_piece() -> None:
    some = msgspec.structs.replace(blocks("Expert", layers("experts", 4), 0.9), shares=(0.45, 0.0, 0.45, 0.0))
    assert cut(Diagnosis(repeated=(some,)))[0].paths == ("experts.0", "experts.2")


def test_blocks_whose_time_nobody_knows_count_by_their_parameters() -> None:
    untimed = msgspec.structs.replace(blocks("Block", layers("h", 4), 0.0), shares=())
    assert cut(Diagnosis(repeated=(untimed,), parameter_bytes=320))[0].share == pytest.approx(0.45)


def test_calls_too_short_for_a_guard_of_their_own_are_no_pieces() -> None:
    assert cut(msgspec.structs.replace(gpt2(), eager_call_s=200e-6)) == []


def test_the_whole_under_another_name_is_opened() -> None:
    wrapped = [part("net", 0.99), *(part(f"net.{one.path}", one.share) for one in unet().parts)]
    assert len(cut(Diagnosis(parts=tuple(wrapped)))) == len(unet().parts)


@pytest.mark.parametrize("name", ["a,b", "a:b", "a*", "a b"])
def test_a_name_that_a_selector_would_misread_is_left_out(name: str) -> None:
    assert cut(Diagnosis(parts=(part(name, 0.5), part("plain", 0.3)))) == cut(Diagnosis(parts=(part("plain", 0.3),)))


# ---------------------------------------------------------------------------------------------------------- selectors


def test_all_like_blocks_are_selected_by_their_structure_and_some_by_their_paths() -> None:
    diagnosis = gpt2()
    whole, _ = cut(diagnosis)
    assert whole.selector == f"block:{diagnosis.repeated[0].structure_sha256[:16]}"
    assert paths_of(whole.selector, diagnosis) == diagnosis.repeated[0].paths
    assert paths_of("model.h.1,model.h.2", diagnosis) == ("model.h.1", "model.h.2")
    assert paths_of("model.h.*", diagnosis) == diagnosis.repeated[0].paths
    assert paths_of("not.known", diagnosis) == ("not.known",)


def test_two_kinds_of_block_with_one_structure_are_selected_by_their_paths() -> None:
    one, other = blocks("Block", layers("a", 2), 0.4), blocks("Block", layers("b", 2), 0.4)
    assert {piece.selector for piece in cut(Diagnosis(repeated=(one, other)))} == {"a.0,a.1", "b.0,b.1"}


# -------------------------------------------------------------------------------------------------------------- seeds


def test_repeated_blocks_first_then_what_is_inside_of_the_one_that_dominates() -> None:
    assert [c.label for c in of(gpt2())] == [
        "inductor on 12 x Block",
        "inductor on 12 x Mlp",
        "inductor on 12 x Attention",
    ]
    assert "one is compiled, all share it" in of(gpt2())[0].rationale
    assert "inside of 12 x Block" in of(gpt2())[1].rationale


def test_the_bottleneck_is_the_fewest_submodules_that_cover_four_fifths_of_the_time() -> None:
    (found,) = of(unet())
    assert set(covered(found, unet())) == {"up4", "up3", "up2", "up1", "inc"}
    assert found.label == "inductor on up4 + up3 + up2 + 2 more"


def test_nothing_repeated_and_no_bottleneck_means_no_boundary() -> None:
    assert of(Diagnosis()) == []
    assert of(Diagnosis(parts=(part("net", 0.97),))) == []
    assert of(Diagnosis(parts=(part("encoder", 0.5), part("decoder", 0.48)))) == []


def test_where_the_whole_cannot_be_had_everything_that_can_comes_first() -> None:
    assert of(gpt2(), in_parts=True)[0].label == "inductor on 12 x Block + head"
    assert of(Diagnosis(parts=(part("net", 0.97),)), in_parts=True)[0].label == "inductor on net"


def test_what_stops_the_compiler_is_left_out_and_said() -> None:
    first = of(gpt2(breaks=(stop("model.h.5"),)))[0]
    assert first.label == "inductor on 11 of 12 x Block + head + model.h.5.mlp"
    assert "without what stops the compiler" in first.rationale


def test_regions_never_overlap() -> None:
    for diagnosis in (
        gpt2(),
        unet(),
        gpt2(breaks=(stop("model.h.5"),)),
        gpt2(breaks=(stop("model", "model.h.1.mlp"),)),
    ):
        for candidate in of(diagnosis, in_parts=True):
            paths = covered(candidate, diagnosis)
            assert len(paths) == len(set(paths))
            assert not any(a != b and b.startswith(f"{a}.") for a in paths for b in paths)


def test_declared_sizes_vary_at_the_models_door_and_in_its_regions() -> None:
    varying = msgspec.structs.replace(gpt2(), dynamic=True)
    (first, *_) = of(varying, msgspec.structs.replace(INDUCTOR, shapes=Shapes.DYNAMIC))
    assert first.settings == Settings(shapes=Shapes.DYNAMIC)
    assert not first.is_eager


# --------------------------------------------------------------------------------------------------------- variations


def test_widening_adds_the_largest_piece_that_is_left() -> None:
    base = of(unet())[0]
    steps = boundary.wider(base, INDUCTOR, unet())
    assert [step.piece.title for step in steps] == ["down1", "down2", "down3", "down4"]
    assert set(covered(steps[0].candidate, unet())) == {*covered(base, unet()), "down1"}


def test_what_is_left_of_like_blocks_may_have_another_engine() -> None:
    diagnosis = gpt2()
    eleven = [f"model.h.{n}" for n in range(12) if n != 8]
    base = boundary.with_regions([Region(selector=",".join(eleven), settings=INDUCTOR)], "test", diagnosis)
    steps = boundary.wider(base, OPENVINO, diagnosis)
    assert {step.piece.title for step in steps} == {"head", "model.h.8"}
    [own] = [step for step in steps if step.piece.title == "model.h.8"]
    assert own.candidate.label == "inductor on 11 of 12 x Block, openvino on model.h.8"
    assert own.piece.share == pytest.approx(0.8 / 12)


def test_the_same_regions_are_the_same_candidate_whatever_the_order() -> None:
    regions = [Region(selector="b", settings=INDUCTOR), Region(selector="a", settings=OPENVINO)]
    one, other = (boundary.with_regions(some, "test", unet()) for some in (regions, regions[::-1]))
    assert one.id == other.id


def test_a_hybrid_changes_the_engine_of_one_region_of_several() -> None:
    diagnosis = gpt2()
    both = boundary.regional(cut(diagnosis), INDUCTOR, "test", diagnosis)
    found = [c.label for c in boundary.with_other_engine(both, OPENVINO, diagnosis)]
    assert sorted(found) == ["inductor on 12 x Block, openvino on head", "openvino on 12 x Block, inductor on head"]
    assert list(boundary.with_other_engine(of(diagnosis)[0], OPENVINO, diagnosis)) == []  # that is a seed of its own


def test_a_knob_is_turned_in_the_regions_and_not_in_the_rest() -> None:
    diagnosis = gpt2()
    knob = Knob("freezing", Acts.OPTION, (False, True), "", variations=(Variation(True, "freezing", "because"),))
    (turn,) = boundary.region_turns(of(diagnosis)[0], [knob], diagnosis)
    assert turn.candidate.regions[0].settings.options == {"freezing": True}
    assert turn.candidate.settings == Settings()
    assert turn.candidate.label == "inductor freezing on 12 x Block"


FREEZING = Knob("freezing", Acts.OPTION, (False, True), "", variations=(Variation(True, "freezing", "because"),))


def test_a_knob_is_turned_in_all_regions_and_in_the_largest_alone() -> None:
    diagnosis = gpt2()
    both = boundary.regional(cut(diagnosis), INDUCTOR, "test", diagnosis)
    found = [turn.candidate for turn in boundary.region_turns(both, [FREEZING], diagnosis)]
    assert [c.label for c in found] == [
        "inductor freezing on 12 x Block + head",
        "inductor freezing on 12 x Block, inductor on head",
    ]
    assert [c.rationale for c in found] == ["because", "because; only where most of the time goes"]
    alone = boundary.region_turns(found[1], [FREEZING], diagnosis)
    assert alone == []  # it is turned there already


def test_of_two_engines_the_one_with_most_of_the_time_is_the_main_one_whatever_its_name() -> None:
    diagnosis = Diagnosis(parts=(part("a", 0.1), part("z", 0.6)))
    regions = [Region(selector="a", settings=INDUCTOR), Region(selector="z", settings=OPENVINO)]
    mixed = boundary.with_regions(regions, "", diagnosis)
    assert mixed.regions[0].settings == INDUCTOR
    assert boundary.main_engine(mixed, diagnosis) == "openvino"
    assert boundary.main_region(mixed, diagnosis).selector == "z"
    assert boundary.main_engine(Candidate(settings=INDUCTOR, label="", rationale=""), diagnosis) == "inductor"


def test_shares_of_an_engine_add_up() -> None:
    diagnosis = Diagnosis(parts=(part("a", 0.3), part("b", 0.2), part("c", 0.4)))
    settings = {"a": OPENVINO, "b": OPENVINO, "c": INDUCTOR}
    regions = [Region(selector=path, settings=one) for path, one in settings.items()]
    mixed = boundary.with_regions(regions, "", diagnosis)
    assert boundary.main_engine(mixed, diagnosis) == "openvino"
    assert boundary.main_region(mixed, diagnosis).selector == "a"


def test_a_label_says_what_is_set() -> None:
    options = {"freezing": True, "asserts": False, "hint": "latency", "streams": 2}
    settings = Settings(engine="some", options=options, precision=Precision.BF16)
    assert of(gpt2(), settings)[0].label == "some freezing no asserts latency streams=2 bf16 on 12 x Block"


def test_a_wider_one_keeps_its_process_and_says_so() -> None:
    diagnosis = unet()
    base = of(diagnosis)[0]
    threads = msgspec.structs.replace(base.process, threads=1)
    alone = msgspec.structs.replace(base, label=f"{base.label}, 1 thread", process=threads)
    found = boundary.wider(alone, INDUCTOR, diagnosis)[0].candidate
    assert found.process == threads
    assert found.label.endswith(", 1 thread")


def test_families_keep_regions_and_whole_models_apart() -> None:
    diagnosis = gpt2()
    both = boundary.with_regions(
        [Region(selector="a", settings=OPENVINO), Region(selector="b", settings=INDUCTOR)], "", diagnosis
    )
    whole = Candidate(settings=INDUCTOR, label="", rationale="")
    assert boundary.family(whole) == "inductor"
    assert boundary.family(of(diagnosis)[0]) == "regions: inductor"
    assert boundary.family(both) == "regions: inductor + openvino"
