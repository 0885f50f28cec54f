"""Draws recurrent layers."""

from __future__ import annotations

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.values import LeafRole

__all__ = ["RULES"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
_ACTIVATIONS = ("Sigmoid", "Tanh", "HardSigmoid", "Softsign", "ScaledTanh")
"""Bounded ones: with others, states grow and rounding decides; Softplus overflows in onnxruntime from 89 on."""


def _draw_recurrent(d: Drawer, operator: str) -> None:
    """Append an LSTM, a GRU or an RNN with few steps; biases, lengths and states come at random."""
    gates = _GATES[operator]
    x = d.tensor(("float32",), rank=3, where=lambda v: v.size > 0 and v.shape[0] <= 17)
    first, second, features = d.array(x).shape
    attributes: Attributes = {"hidden_size": (hidden := d.choice((1, 3, 8, 16)))}
    direction = d.choice(("forward", "reverse", "bidirectional"))
    directions = 2 if direction == "bidirectional" else 1
    attributes["direction"] = direction
    batch_first = d.opset >= 14 and d.chance(0.15)
    if batch_first:
        attributes["layout"] = 1
    steps, batch = (second, first) if batch_first else (first, second)

    def tensor(*shape: int) -> str:
        return d.leaf("float32", shape, LeafRole(-1.5, 1.5))

    inputs = [x, tensor(directions, gates * hidden, features), tensor(directions, gates * hidden, hidden)]
    states = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    inputs.append(tensor(directions, 2 * gates * hidden) if d.chance(0.6) else "")
    inputs.append(d.leaf("int32", (batch,), LeafRole(1, steps)) if d.chance(0.25) else "")
    inputs.append(tensor(*states) if d.chance(0.4) else "")
    if operator == "LSTM":
        inputs.append(tensor(*states) if d.chance(0.4) else "")
        inputs.append(tensor(directions, 3 * hidden) if d.chance(0.2) else "")
        if d.chance(0.2):
            attributes["input_forget"] = 1
    if operator == "GRU" and d.chance(0.5):
        attributes["linear_before_reset"] = 1
    if d.chance(0.2):
        attributes["clip"] = 0.8
    if d.chance(0.25):
        attributes["activations"] = [d.choice(_ACTIVATIONS) for _ in range(directions * _FUNCTIONS[operator])]
        scaled = sum(name in ("HardSigmoid", "ScaledTanh") for name in attributes["activations"])
        if "ScaledTanh" in attributes["activations"] or (scaled and d.chance(0.5)):
            attributes |= {"activation_alpha": [0.3] * scaled, "activation_beta": [0.4] * scaled}
    while not inputs[-1]:
        inputs.pop()
    d.node(operator, inputs, attributes, 3 if operator == "LSTM" else 2)


RULES: dict[str, Rule] = dict.fromkeys(_GATES, _draw_recurrent)
