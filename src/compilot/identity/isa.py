"""CPU instructions that compiled code may hold, by the names that /proc/cpuinfo gives them.

In: the flags of a CPU. Out: those that a fingerprint records, those of them that matter to engines which choose their
code when they start, and few words about many of them.
torch builds its kernels with -march=native, so a compiled file may hold whatever the compiler chooses by itself from
the CPU it ran on, and ends the process with SIGILL on a CPU that lacks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

# What gcc and clang choose by themselves under -march=native. A family is taken by its name, so that a new member is
# not missed. Left out: what only source code asks for (aes, sha_ni, rdrand, clwb, xsave, ...), and what the kernel or
# its command line decides (pku, shstk, sgx, rtm, paca, ...): one CPU under two kernels must not look like two CPUs.
_X86 = {
    "mmx", "ssse3", "pni", "3dnowprefetch",  # vectors of 64 and 128 bits (pni is SSE3), and the prefetch for writing
    "fma", "fma4", "f16c", "xop",  # of 256 bits
    "cx16", "lahf_lm", "movbe", "popcnt", "abm", "bmi1", "bmi2", "tbm", "adx",  # plain registers (abm holds LZCNT)
    "gfni", "pclmulqdq", "vpclmulqdq",  # loops over bits and checksums become these
}  # fmt: skip
_X86_FAMILIES = ("sse", "avx", "amx_", "apx")  # avx512: vbmi, vbmi2, ifma, bitalg, vpopcntdq, cd, vnni, bf16, fp16
_ARM = {
    "fp", "fphp", "jscvt", "fcma", "frint", "bf16", "ebf16", "i8mm", "faminmax",
    "atomics", "lse128", "ilrcpc", "crc32", "cssc", "mops",
    "sha3",  # its three-way XOR
}  # fmt: skip
_ARM_FAMILIES = ("asimd", "sve", "sme", "lrcpc", "flagm")  # sve with its vectors' length, compiled in: sve_256bit
# What libraries that look at the CPU when they start make a difference for: vector widths and arithmetic.
_AT_RUN_TIME = {
    "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16",
    "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm", "sme",
}  # fmt: skip
_TELLING = ("amx_tile", "avx512_vnni", "avx512f", "avx_vnni", "avx2", "avx", "sse4_2", "sve2", "sve", "asimd")
MOST_NAMED = 4  # flags that a sentence names; a CPU generation brings up to twenty


def recorded(flags: Iterable[str], *, arm: bool) -> tuple[str, ...]:
    """The flags that a fingerprint keeps, sorted."""
    names, families = (_ARM, _ARM_FAMILIES) if arm else (_X86, _X86_FAMILIES)
    return tuple(sorted({flag for flag in flags if flag in names or flag.startswith(families)}))


def at_run_time(isa: Iterable[str]) -> set[str]:
    """Those of the recorded flags that engines which choose their code at run time make a difference for."""
    return _AT_RUN_TIME & set(isa)


def changed(old: Collection[str], new: Collection[str]) -> set[str]:
    """Gone and new ones; a record of an older compilot, which kept fewer kinds, is compared by those."""
    a, b = set(old), set(new)
    if a == at_run_time(a) or b == at_run_time(b):
        a, b = at_run_time(a), at_run_time(b)
    return a ^ b


def vector_length(size_bytes: int) -> str:
    """The flag that stands for a length of scalable vectors."""
    return f"sve_{size_bytes * 8}bit"


def named(flags: Iterable[str]) -> str:
    """ "avx512_vnni, avx512f, avx512bw, avx512cd and 7 more": the telling ones first."""
    ordered = sorted(flags, key=lambda flag: (_TELLING.index(flag) if flag in _TELLING else len(_TELLING), flag))
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return ", ".join(ordered[:MOST_NAMED]) + more


def best(isa: Collection[str]) -> str:
    """The one flag that says most about a CPU."""
    return next((flag for flag in _TELLING if flag in isa), "no vector instructions")
