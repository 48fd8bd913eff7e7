"""Models that a test makes up, as a diagnosis sees them."""

from __future__ import annotations

from compilot.records import BreakPlace, Diagnosis, ModulePart, RepeatedBlock


def part(path: str, share: float, class_name: str = "Part", calls: int = 1) -> ModulePart:
    return ModulePart(path=path, class_name=class_name, share=share, calls=calls)


def blocks(class_name: str, paths: list[str], share: float, level: int = 0) -> RepeatedBlock:
    """Like blocks that take this share of a call together."""
    digest = class_name.encode().hex().ljust(64, "0")
    shares = (share / len(paths),) * len(paths)
    return RepeatedBlock(
        class_name=class_name, paths=tuple(paths), parameters=10, structure_sha256=digest, level=level, shares=shares
    )


def layers(where: str, count: int, inner: str = "") -> list[str]:
    return [f"{where}.{n}{inner}" for n in range(count)]


def gpt2(count: int = 12, breaks: tuple[BreakPlace, ...] = ()) -> Diagnosis:
    """A wrapper around like blocks, each with attention and an MLP; the rest is a head."""
    return Diagnosis(
        cores=2,
        threads=2,
        eager_call_s=0.05,
        repeated=(
            blocks("Block", layers("model.h", count), 0.8),
            blocks("Mlp", layers("model.h", count, ".mlp"), 0.45, level=1),
            blocks("Attention", layers("model.h", count, ".attn"), 0.3, level=1),
        ),
        parts=(part("model", 0.85, "Model"), part("head", 0.12, "Head")),
        breaks=breaks,
        graph_breaks=len(breaks),
        export_stops=sum(place.stops_export for place in breaks),
    )


def unet() -> Diagnosis:
    """Ten stages of unlike sizes, nothing repeated."""
    shares = {"inc": 0.06, "down1": 0.05, "down2": 0.04, "down3": 0.04, "down4": 0.03, "up1": 0.1, "up2": 0.15}
    stages = {**shares, "up3": 0.22, "up4": 0.31}
    return Diagnosis(
        cores=2, threads=2, eager_call_s=0.05, parts=tuple(part(path, share) for path, share in stages.items())
    )


def stop(*modules: str, line: int = 7, exports: bool = True) -> BreakPlace:
    return BreakPlace(where=f"net.py:{line}", modules=modules, stops_export=exports)
