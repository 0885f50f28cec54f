"""`kintune sign` and `kintune verify`: signatures of results and of wheels."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.runtime.signing import Signed, sign_file, verify_file

__all__ = ["SignedDocument", "SignedFile", "sign", "verify"]


class SignedFile(msgspec.Struct, frozen=True):
    """A file, the file that has its signature, and the SHA-256 digest of its content without that."""

    path: str
    signature: str
    sha256: str

    @classmethod
    def of(cls, signed: Signed) -> SignedFile:
        """What is told of a file that was signed or verified."""
        return cls(str(signed.path), str(signed.signature), signed.digest.hex())


class SignedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune sign --json` and `kintune verify --json`: the files, in their order."""

    schema_version: int = 1
    files: tuple[SignedFile, ...]


@click.command("sign", short_help="Sign results or wheels.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--key", metavar="KEY.pem", required=True, help="The private key, of Ed25519.")
@json_option
def sign(files: tuple[str, ...], key: str, json_target: JsonTarget) -> None:
    """Sign files with a private key of Ed25519.

    A .kt file has its signature inside; any other file gets a file FILE.sig beside it. 'openssl genpkey -algorithm
    ed25519 -out KEY.pem' makes a key, 'openssl pkey -in KEY.pem -pubout' writes the public one.
    """
    signed = tuple(SignedFile.of(sign_file(each, key)) for each in files)
    write_document(json_target, SignedDocument(files=signed))
    for each in signed:
        echo(f"{each.path} is signed{'' if each.signature == each.path else f': {each.signature}'}", json_target)


@click.command("verify", short_help="Verify the signatures of results or wheels.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--key", metavar="PUBLIC.pem", required=True, help="The public key, of Ed25519.")
@json_option
def verify(files: tuple[str, ...], key: str, json_target: JsonTarget) -> None:
    """Verify that files were signed with the private key of a public one, and not altered since then.

    It ends with code 2 at the first one that was not.
    """
    verified = tuple(SignedFile.of(verify_file(each, key)) for each in files)
    write_document(json_target, SignedDocument(files=verified))
    for each in verified:
        echo(f"{each.path} is as it was signed", json_target)
