"""Complex numbers inside of PyTorch modules: spectra, rotary embeddings, arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kintune.errors import ModelError
from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

Compare = Callable[..., Any]


def real(z: Any) -> Any:
    """The parts of a complex tensor along a new axis."""
    return torch.view_as_real(z.resolve_conj())


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_fourier_transforms(compare: Compare, norm: str) -> None:
    fft = torch.fft

    def net(x: Any) -> Any:
        half, z = fft.rfft(x, dim=1, norm=norm), torch.complex(x, x.flip(0) * 2)
        return (
            *(real(half), real(fft.fft(x, norm=norm)), real(fft.rfft2(x, norm=norm)), fft.rfft(x, n=6).abs()),
            *(real(fft.fft(z, dim=0, norm=norm)), real(fft.ifft(z, norm=norm)), real(fft.fft2(z, norm=norm))),
            *(fft.irfft(z, norm=norm), fft.irfft(z, n=7, norm=norm), fft.irfft2(z, s=(4, 6), norm=norm)),
            *(real(fft.ihfft(x)), real(fft.fftshift(z))),
        )

    compare(net, draw(4, 5, 6))


@pytest.mark.parametrize("options", [{}, {"center": False}, {"onesided": False, "normalized": True}])
def test_spectrograms(compare: Compare, options: dict[str, Any]) -> None:
    class Spectrogram(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(32))
            self.register_buffer("filters", draw(17, 6).abs())

        def forward(self, x: Any) -> Any:
            z = torch.stft(x, 32, hop_length=8, window=self.window, return_complex=True, **options)
            power = z.abs().pow(2)[:, :17]
            return power, z.angle()[:, 3:9, 2:], torch.log(power.transpose(1, 2) @ self.filters + 1e-3), z.real, z.imag

    compare(Spectrogram(), draw(2, 200), tolerance=2e-4)


def test_rotary_embeddings(compare: Compare) -> None:
    class Rotary(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            angles = torch.outer(torch.arange(5.0), 10.0 ** -torch.arange(4.0))
            self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

        def forward(self, q: Any) -> Any:
            pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
            return real(pairs * self.turns[:, None]).flatten(3).type_as(q)

    compare(Rotary(), draw(2, 5, 3, 8))


def test_arithmetic(compare: Compare) -> None:
    def net(x: Any, y: Any) -> Any:
        a, b = torch.complex(x, y), torch.complex(y[:1], x[:1] + 3)
        matrix = torch.complex(x.t(), y.t())
        return tuple(
            real(z)
            for z in (
                *(a + b, a - b, a * b, a / b, a + x, x - a, a * x, x[:1] * a, a / (x.abs() + 1), a + 1, a * 2, a / 2),
                *(a * (1 + 2j), a - 2j, -a, a.conj(), a * b.conj(), a**2, torch.exp(a), torch.polar(x.abs(), y)),
                *(a @ matrix, (a[None] @ matrix[None])[0], a.sum(), a.mean(1), a.cumsum(0), torch.cat([a, b, x + 0j])),
                *(a.t(), a[:, 1::2], a.reshape(-1), a.flip(1), a.roll(1, 0), a.repeat(2, 1), torch.stack([a, a * 2])),
                *(a.unbind(0)[1], a.split(2, 1)[0], a[torch.tensor([1, 0])], torch.nn.functional.pad(a, (1, 2))),
            )
        )

    compare(net, draw(3, 4), draw(3, 4, seed=1))


def test_complex_numbers_do_not_leave_the_model(tmp_path: Path) -> None:
    from kintune.models.importer import load

    class Taken(torch.nn.Module):
        def forward(self, z: Any) -> Any:
            return z.abs()

    class Returned(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x)

    with pytest.raises(ModelError, match="input z is complex"):
        load(export_module(Taken(), (torch.zeros(3, dtype=torch.complex64),), tmp_path))
    with pytest.raises(ModelError, match=r"return torch\.view_as_real"):
        load(export_module(Returned(), (draw(6),), tmp_path))
