"""Users of a service, and a model that they upload."""

from __future__ import annotations

from typing import Any, Protocol

import onnx
from onnx import TensorProto, helper

from kintune.records.database import Database
from kintune.service.access import Quota, Scope, Visitor
from kintune.service.users import Users

__all__ = ["dynamic_onnx", "upload", "visitor"]


class _Client(Protocol):
    def post(self, url: str, /, **more: Any) -> Any: ...


def visitor(database: Database, name: str, scope: Scope = Scope.SUBMIT, quota: Quota | None = None) -> Visitor:
    """A new user with a token."""
    users = Users(database)
    user = users.add_user(name, 100.0, quota)
    return users.visitor(users.add_token(user, "", scope, 100.0, None).text, 200.0)


def dynamic_onnx() -> onnx.ModelProto:
    """y = relu(x + w), where x is float32 of [batch, 4] and batch is not fixed."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def upload(client: _Client, data: bytes | None = None, name: str = "small.onnx") -> int:
    """Upload a model by the API; returns its number."""
    body = dynamic_onnx().SerializeToString() if data is None else data
    answer = client.post("/api/v1/models", params={"name": name}, content=body)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])
