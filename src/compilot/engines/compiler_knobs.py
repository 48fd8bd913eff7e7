"""Knobs of torch's own compiler, which torch.compile and AOTInductor share.

In: nothing. Out: knobs, mostly named as torch names its options (compiler_options.py has the rest). Covered: what
may change the speed of a model, one value or two each; what each brings is measured in the run. Not covered: options
that change the arithmetic (unsafe maths, contraction), limits on the cost of autotuning: on a CPU torch has none (its
search space and its time-outs are those of GPU kernels), so a trial's own time limit is the cap.
"""

from __future__ import annotations

from compilot.engines.compiler_options import ONEDNN_PRODUCTS
from compilot.engines.space import Acts, Knob, Need, Risk, Variation

FREEZING = Knob(
    "freezing",
    Acts.OPTION,
    (False, True),
    "weights become constants: folded, prepacked, fused",
    risk=Risk.NUMERICS,
    needs=(Need.INFERENCE,),
    variations=(Variation(True, "freezing", "the best so far, with its weights as constants: folded and prepacked"),),
)
MAX_AUTOTUNE = Knob(
    "max_autotune",
    Acts.OPTION,
    (False, True),
    "constant weights let the C++ GEMM templates compete with the library",
    risk=Risk.SLOW_BUILD,
    only_with={"freezing": True},
    variations=(Variation(True, "max_autotune", "the best so far, C++ GEMM templates measured against the library's"),),
)
EPILOGUE_FUSION = Knob(
    "epilogue_fusion",
    Acts.OPTION,
    (True, False),
    "matrix products of templates without what follows them: shorter kernels, more of them",
    only_with={"max_autotune": True},
    variations=(Variation(False, "no epilogue fusion", "the best so far, what follows a matrix product on its own"),),
)
AGGRESSIVE_FUSION = Knob(
    "aggressive_fusion",
    Acts.OPTION,
    (False, True),
    "loops are fused that read nothing in common: fewer kernels",
    variations=(Variation(True, "aggressive fusion", "the best so far, with loops fused that share no input"),),
)
MAX_FUSION_SIZE = Knob(
    "max_fusion_size",
    Acts.OPTION,
    (64, 16, 128),
    "smaller kernels keep what they read in registers and cache, larger ones write less in between",
    variations=(
        Variation(16, "small kernels", "the best so far, with at most 16 operations fused into one kernel"),
        Variation(128, "large kernels", "the best so far, with up to 128 operations fused into one kernel"),
    ),
)
LAYOUT_OPTIMIZATION = Knob(
    "layout_optimization",
    Acts.OPTION,
    (True, False),
    "convolutions keep the memory layout of the model: nothing is converted in between",
    needs=(Need.IMAGES,),
    variations=(Variation(False, "layouts as they are", "the best so far, convolutions in the model's own layout"),),
    without=False,
)
PATTERN_MATCHER = Knob(
    "pattern_matcher",
    Acts.OPTION,
    (True, False),
    "torch's rewrites of the graph are left out, where one of them harms",
    variations=(Variation(False, "no graph rewrites", "the best so far, without torch's own rewrites of the graph"),),
    without=False,
)
SIMDLEN = Knob(
    "cpp.simdlen",
    Acts.OPTION,
    (512, 256),
    "vectors of half the length: many CPUs lower their clock for the longest ones",
    needs=(Need.LONG_VECTORS,),
    variations=(Variation(256, "256-bit vectors", "the best so far with shorter vectors: often a higher clock"),),
)
MIN_CHUNK_SIZE = Knob(
    "cpp.min_chunk_size",
    Acts.OPTION,
    (512, 4096),
    "small loops stay in one thread: no waiting for the others",
    needs=(Need.SEVERAL_THREADS,),
    variations=(Variation(4096, "small loops in one thread", "the best so far, only large loops shared by threads"),),
)
LOOP_THREADS = Knob(
    "cpp.threads",
    Acts.OPTION,
    (-1, 1),
    "loops of the generated code in one thread, products and convolutions of the libraries in all",
    needs=(Need.SEVERAL_THREADS,),
    variations=(Variation(1, "loops in one thread", "the best so far, only the libraries use several threads"),),
)
PRODUCTS = Knob(
    ONEDNN_PRODUCTS,
    Acts.OPTION,
    (False, True),
    "fp32 matrix products by oneDNN, where it is faster on this CPU than torch's math library",
    needs=(Need.FASTER_PRODUCTS,),
    only_with={"freezing": False},  # frozen weights are packed, by oneDNN in AOTInductor
    variations=(Variation(True, "oneDNN products", "the best so far, its fp32 matrix products computed by oneDNN"),),
)
SHARED = (
    FREEZING,
    MAX_AUTOTUNE,
    EPILOGUE_FUSION,
    AGGRESSIVE_FUSION,
    MAX_FUSION_SIZE,
    LAYOUT_OPTIMIZATION,
    PATTERN_MATCHER,
    SIMDLEN,
    MIN_CHUNK_SIZE,
    LOOP_THREADS,
    PRODUCTS,
)
# Options whose whole effect shows in the generated code: two candidates that differ only in these and have the same
# code are the same program. Everything else may act below the code (compiler flags, threads, constants).
SHOWN_IN_CODE = frozenset(
    knob.name
    for knob in (
        MAX_AUTOTUNE,
        EPILOGUE_FUSION,
        AGGRESSIVE_FUSION,
        MAX_FUSION_SIZE,
        LAYOUT_OPTIMIZATION,
        PATTERN_MATCHER,
        MIN_CHUNK_SIZE,
        LOOP_THREADS,
        PRODUCTS,
    )
)
