"""The structural clone: new modules, the same tensors, nothing pointing back."""

from __future__ import annotations

import functools

import torch
from torch import nn

from compilot.modules.clone import alias, channels_last_clone, clone_around, structural_clone


class Block(nn.Module):
    def __init__(self, shared: nn.Module):
        super().__init__()
        self.shared = shared
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.register_buffer("shift", torch.zeros(1, 3, 1, 1))

    def forward(self, x):
        return self.shared(self.conv(x)) + self.shift


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        shared = nn.Conv2d(3, 3, 1)
        self.blocks = nn.ModuleList([Block(shared), Block(shared)])
        self.plain_list = [self.blocks[0], {"inner": (self.blocks[1],)}]
        self.bound = self.blocks[0].forward
        self.partial = functools.partial(self.blocks[1].forward)
        self.log: list[str] = []

    def forward(self, x):
        self.log.append("forward")
        return self.plain_list[0](x) + self.plain_list[1]["inner"][0](x) + self.bound(x) + self.partial(x)


X = torch.randn(1, 3, 8, 8)


def test_the_clone_shares_every_tensor_and_no_module():
    net = Net()
    clone = structural_clone(net)
    assert {id(t) for t in clone.state_dict(keep_vars=True).values()} == {
        id(t) for t in net.state_dict(keep_vars=True).values()
    }
    assert {id(m) for m in clone.modules()}.isdisjoint(id(m) for m in net.modules())
    assert torch.equal(clone(X), net(X))


def test_references_in_lists_dicts_tuples_and_methods_point_into_the_clone():
    clone = structural_clone(Net())
    inside = {id(m) for m in clone.modules()}
    assert id(clone.plain_list[0]) in inside
    assert id(clone.plain_list[1]["inner"][0]) in inside
    assert id(clone.bound.__self__) in inside
    assert id(clone.partial.func.__self__) in inside


def test_tied_modules_stay_tied():
    clone = structural_clone(Net())
    assert clone.blocks[0].shared is clone.blocks[1].shared


def test_state_that_is_no_module_is_shared_and_dicts_of_modules_are_not():
    net = Net()
    clone = structural_clone(net)
    clone(X)
    assert net.log == ["forward"]
    clone.blocks[0].conv = nn.Identity()
    clone.blocks[0].register_buffer("other", torch.zeros(1))
    clone.register_forward_hook(lambda *args: None)
    assert isinstance(net.blocks[0].conv, nn.Conv2d)
    assert "other" not in net.blocks[0]._buffers
    assert not net._forward_hooks


def test_hooks_come_along():
    net = Net()
    seen = []
    net.blocks[0].register_forward_hook(lambda *args: seen.append(1))
    structural_clone(net)(X)
    assert len(seen) == 1  # the bound and partial calls of forward run no hooks, in the clone as in the model


def test_row_37_channels_last_changes_the_clone_only():
    net = Net().eval()
    strides = {name: t.stride() for name, t in net.state_dict().items()}
    clone, copied = channels_last_clone(net)
    assert copied
    assert clone.blocks[0].conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert clone.blocks[0].conv.bias is net.blocks[0].conv.bias
    assert {name: t.stride() for name, t in net.state_dict().items()} == strides
    assert clone.blocks[0].shared.weight is clone.blocks[1].shared.weight
    torch.testing.assert_close(clone(X), net(X))


def test_a_model_without_images_copies_nothing():
    _, copied = channels_last_clone(nn.Linear(2, 2))
    assert not copied


class Loud(Block):
    def forward(self, x):
        return super().forward(x) + 1


def around(net, *paths):
    """The net with aliases of these submodules that answer one more."""
    return clone_around(net, {id(net.get_submodule(path)): alias(net.get_submodule(path), Loud) for path in paths})


def test_a_clone_around_submodules_has_the_others_in_all_their_places_and_leaves_the_model_alone():
    net = Net()
    before = net(X)
    clone = around(net, "blocks.0")
    assert torch.allclose(clone(X), before + 1, atol=1e-5)  # in the list; a bound method keeps its function
    assert torch.equal(net(X), before)
    assert isinstance(clone.blocks[0], Loud)
    assert clone.blocks[1] is net.blocks[1]
    assert clone.blocks is not net.blocks


def test_a_clone_around_submodules_sees_what_is_assigned_and_registered_later():
    net = Net()
    net.register_buffer("top", torch.ones(1))
    clone = around(net, "blocks.0")
    net.blocks[0].conv.weight = nn.Parameter(torch.zeros_like(net.blocks[0].conv.weight))
    net.blocks[1].shift = torch.ones(1, 3, 1, 1)
    net.top = torch.zeros(1)
    assert clone.blocks[0].conv.weight is net.blocks[0].conv.weight
    assert clone.top is net.top
    assert torch.allclose(clone(X), net(X) + 1, atol=1e-5)
    seen = []
    net.register_forward_hook(lambda *_: seen.append("hook"))
    clone(X)
    assert seen == ["hook"]


def test_a_clone_around_nothing_is_the_model_itself():
    net = Net()
    assert clone_around(net, {}) is net
