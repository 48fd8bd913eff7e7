"""Eager: the model as it is, or with its layout or process settings changed."""

from compilot.engines.traits import TORCH, BuildCost, EngineTraits, InstructionSets

TRAITS = EngineTraits(
    build_cost=BuildCost.NONE, keeps_checks=True, instruction_sets=InstructionSets.AT_RUN_TIME, package=TORCH
)
