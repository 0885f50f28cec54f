"""A profile of a small network, as measured nowhere."""

from __future__ import annotations

from kintune.core.device import Peak
from kintune.core.kernel_call import SourceNode
from kintune.core.profile import (
    ComparedGroup,
    Limit,
    NodeProfile,
    OnnxProfile,
    Profile,
    ProfiledCall,
    RegionProfile,
)

__all__ = ["PROFILE", "alone", "in_parts"]

_CONV = ProfiledCall(
    place=0,
    kernel="fused_conv2d_add_relu",
    title="layer3/conv2 (Conv) + Add + Relu",
    nodes=(SourceNode("net/layer3/conv2", "Conv"), SourceNode("net/layer3/relu<2>", "Relu")),
    operators=("conv2d", "add", "relu"),
    threads=2,
    us=400.0,
    share=0.8,
    gflops=250.0,
    gbytes_per_s=3.1,
    limit=Limit.ARITHMETIC,
    least_us=300.0,
    reached=0.75,
    onnxruntime_us=500.0,
    group=0,
)
_COPY = ProfiledCall(
    place=1,
    kernel="transpose",
    title="transpose for layer3/conv2",
    nodes=(SourceNode("net/layer3/conv2", "Conv"),),
    operators=("transpose",),
    inserted=True,
    us=20.0,
    share=0.04,
    gbytes_per_s=30.0,
    limit=Limit.COPIES,
    least_us=25.0,
    reached=1.25,
)
_SOFTMAX = ProfiledCall(
    place=3,
    kernel="softmax",
    title="softmax: softmax",
    nodes=(SourceNode("softmax", "Softmax"),),
    operators=("softmax",),
    us=80.0,
    share=0.16,
    limit=Limit.LAUNCH,
    reached=0.1,
    group=1,
)

PROFILE = Profile(
    executable="net.kt",
    model="net",
    cpu="A Processor",
    threads=2,
    shapes={"x": (1, 3, 8, 8)},
    runs=50,
    run_ms=0.55,
    p10_ms=0.54,
    p90_ms=0.58,
    kernels_ms=0.5,
    gap_ms=0.05,
    copies=2,
    copied_bytes=4096,
    peak=Peak(333.0, 15.0, 2, 20.0),
    prefix="net/",
    calls=(_CONV, _COPY, _SOFTMAX),
    onnxruntime=OnnxProfile(
        version="1.2.3",
        run_ms=1.1,
        nodes_us=700.0,
        matched_us=650.0,
        nodes=(
            NodeProfile("net/layer3/conv2", "Conv", 500.0, 0.0, 0),
            NodeProfile("softmax", "Softmax", 150.0, 500.0, 1),
            NodeProfile("ReorderOutput", "ReorderOutput", 50.0, 650.0),
        ),
        groups=(ComparedGroup((0,), (0,), 400.0, 500.0), ComparedGroup((3, 4), (1,), 81.0, 150.0)),
    ),
    timeline=((0, 5.0, 398.0), (1, 404.0, 21.0), (3, 426.0, 79.0)),
    notes=("a <note>",),
)


def alone() -> Profile:
    """The same without onnxruntime, and without anything that it does not need."""
    import msgspec

    calls = tuple(msgspec.structs.replace(call, onnxruntime_us=None, group=-1) for call in PROFILE.calls)
    return msgspec.structs.replace(PROFILE, calls=calls, onnxruntime=None, peak=None, notes=(), prefix="", copies=0)


def in_parts() -> Profile:
    """The same as a result that runs partly in onnxruntime: the softmax there, and a region that did not run."""
    import msgspec

    conv, copy = (msgspec.structs.replace(call, region=1) for call in alone().calls[:2])
    left = msgspec.structs.replace(
        alone().calls[2], place=2, where="onnxruntime", limit=Limit.UNKNOWN, operators=("Softmax",), reached=0.0
    )
    regions = (
        RegionProfile(0, "kintune/region0", 0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, ("other",)),
        RegionProfile(1, "kintune/region1", 1, 430.0, 0.843, 2, 420.0, 10.0, 4.0, ("conv2", "relu<2>")),
    )
    timeline = ((0, 5.0, 400.0), (1, 404.0, 20.0), (2, 440.0, 80.0))
    return msgspec.structs.replace(alone(), calls=(conv, copy, left), regions=regions, timeline=timeline)
