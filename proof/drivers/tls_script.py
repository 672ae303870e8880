"""The drivers and cqlsh over TLS: python -m proof.drivers.tls_script HOST PORT

Starts nodes of its own, since the one at HOST and PORT has no certificates. Clients have to show one, or a password.
The drivers that are not Python are given HOST PORT tls DIRECTORY LOGIN: the directory has the certificates, and the
login is `certificate` or `password`.
"""

import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

from proof import places
from proof.drivers.builds import go, java, rust
from proof.drivers.checks import Checks
from proof.drivers.cqlsh_script import CQLSH
from proof.oracle.espalier import SECRETS, Espalier

STORE_PASSWORD = SECRETS[1]


def openssl(*arguments) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(directory: Path, name: str) -> None:
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}",
            "-keyout", directory / f"{name}.key", "-out", directory / f"{name}.pem")


def identity(directory: Path, name: str, issuer: str, uri: str = "", days: int = 30) -> None:
    """A key and its certificate, as NAME.key, NAME.pem and both in NAME.both. The certificate may have a URI. It is
    valid for this number of days; with a negative number it has expired.
    """
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost" + (f",URI:{uri}" if uri else "")
    request = directory / f"{name}.csr"
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-addext", names,
            "-keyout", directory / f"{name}.key", "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", directory / f"{issuer}.pem", "-CAkey", directory / f"{issuer}.key",
            "-days", str(days), "-copy_extensions", "copy", "-out", directory / f"{name}.pem")
    parts = [(directory / f"{name}.{kind}").read_text() for kind in ("key", "pem")]
    (directory / f"{name}.both").write_text("".join(parts))


def revocations(directory: Path, issuer: str, *revoked: str) -> str:
    """A list of the certificates of these names, as PEM."""
    def serial(name: str) -> str:
        done = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", str(directory / f"{name}.pem")], check=True,
                              capture_output=True, text=True)
        return done.stdout.strip().removeprefix("serial=")

    index, settings, out = directory / "index.txt", directory / "ca.cnf", directory / "revoked.crl"
    index.write_text("".join(f"R\t400101000000Z\t250101000000Z\t{serial(name)}\tunknown\t/CN={name}\n" for name in revoked))
    number = directory / "crlnumber"
    number.write_text("01\n")
    # Without extensions it would have the first version of the format.
    settings.write_text(f"[ca]\ndefault_ca = own\n[own]\ndatabase = {index}\ncrlnumber = {number}\ndefault_md = sha256\ndefault_crl_days = 30\n"
                        "crl_extensions = extensions\n[extensions]\nauthorityKeyIdentifier = keyid:always\n")
    openssl("ca", "-gencrl", "-config", settings, "-keyfile", directory / f"{issuer}.key", "-cert", directory / f"{issuer}.pem", "-out", out)
    return out.read_text()


def connect(node, directory: Path, name: str | None, version=None, login: tuple[str, str] | None = None) -> Cluster:
    context = ssl.create_default_context(cafile=directory / "authority.pem")
    if version:
        context.minimum_version = context.maximum_version = version
    if name:
        context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    return Cluster([node.host], port=node.port, protocol_version=5, ssl_context=context, ssl_options={"server_hostname": "localhost"},
                   connect_timeout=20, auth_provider=PlainTextAuthProvider(*login) if login else None)


def main() -> None:
    checks = Checks("TLS")
    directory = Path(tempfile.mkdtemp(prefix="espalier-tls-"))
    try:
        for name in ("authority", "stranger"):
            authority(directory, name)
        for name, issuer in (("node", "authority"), ("client", "authority"), ("foreign", "stranger")):
            identity(directory, name, issuer)
        identity(directory, "expired", "authority", days=-1)
        shutil.copy(directory / "authority.pem", directory / "trusted.pem")
        for name in ("node", "client"):
            openssl("pkcs12", "-export", "-in", directory / f"{name}.pem", "-inkey", directory / f"{name}.key", "-passout",
                    f"pass:{STORE_PASSWORD if name == 'node' else 'secret'}", "-out", directory / f"{name}.p12")
        others = {"java": java(), "rust": rust()} | ({"go": go()} if shutil.which("go") else {})
        pem = f"store_type: PEM, keystore: {directory}/node.both, truststore: {directory}/trusted.pem, require_client_auth: true"
        with Espalier.start(client_encryption_options=f"{{enabled: true, {pem}}}") as node:
            mutual(checks, node, directory)
            revocation(checks, node, directory)
            drivers(checks, node, directory, others, "certificate")
        pkcs12 = f"keystore: {directory}/node.p12, keystore_password: {STORE_PASSWORD}"
        with Espalier.start(client_encryption_options=f"{{optional: true, {pkcs12}}}") as node:
            both(checks, node, directory)
        optional = pem.replace("client_auth: true", "client_auth: optional")
        with Espalier.start(client_encryption_options=f"{{enabled: true, {optional}}}", authorizer="CassandraAuthorizer",
                            authenticator=authenticator("MutualTlsWithPasswordFallbackAuthenticator")) as node:
            identities(checks, node, directory)
            drivers(checks, node, directory, others, "password")
            node.environment["ESPALIER_AUTHENTICATOR"] = authenticator("MutualTlsAuthenticator")
            node.environment["ESPALIER_CLIENT_ENCRYPTION_OPTIONS"] = f"{{enabled: true, {pem}}}"
            node.restart()
            certificates_only(checks, node, directory)
    finally:
        shutil.rmtree(directory)
    checks.end()


def mutual(checks: Checks, node, directory: Path) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with checks.part(version.name):
            cluster = connect(node, directory, "client", version)
            works(checks, version.name, cluster)
            for name in ("foreign", "expired", None):
                refused = connect(node, directory, name, version)
                checks.raises(f"{version.name}: certificate {name}", NoHostAvailable, "", refused.connect)
                refused.shutdown()
    with checks.part("cqlsh"):
        cqlsh(checks, node, directory)
    with checks.part("reload"):
        cluster = connect(node, directory, "client")
        session = cluster.connect()
        identity(directory, "node", "authority")
        node.steer("reloadssl")
        checks.equal("a connection survives a reload", session.execute("SELECT key FROM system.local").one().key, "local")
        cluster.shutdown()
        works(checks, "after a reload", connect(node, directory, "client"))


def revocation(checks: Checks, node, directory: Path) -> None:
    """A certificate on a list in the trust store is refused from the reload on, and another
    of the same authority is not."""
    identity(directory, "revoked", "authority")
    store = directory / "trusted.pem"
    with checks.part("revocation"):
        works(checks, "before it is revoked", connect(node, directory, "revoked"))
        authority_alone = store.read_text()
        store.write_text(authority_alone + revocations(directory, "authority", "revoked"))
        node.steer("reloadssl")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            refused = connect(node, directory, "revoked", version)
            checks.raises(f"{version.name}: a revoked certificate", NoHostAvailable, "", refused.connect)
            refused.shutdown()
        works(checks, "a certificate that is not revoked", connect(node, directory, "client"))
        store.write_text(authority_alone)
        node.steer("reloadssl")
        works(checks, "after the list is gone", connect(node, directory, "revoked"))


def drivers(checks: Checks, node, directory: Path, others: dict[str, list[str]], login: str) -> None:
    """Each driver makes a few checks of its own, and says how many."""
    for name, command in others.items():
        with checks.part(f"{name}, {login}"):
            done = subprocess.run([*command, node.host, str(node.port), "tls", str(directory), login], cwd=places.ROOT,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
            totals = re.search(r"^(\d+) passed, 0 failed$", done.stdout, re.MULTILINE)
            checks.true(f"{name} with a {login}", done.returncode == 0 and totals is not None and int(totals[1]) > 1, done.stdout)


def both(checks: Checks, node, directory: Path) -> None:
    with checks.part("optional"):
        works(checks, "optional: TLS", connect(node, directory, None))
        works(checks, "optional: plain", Cluster([node.host], port=node.port, protocol_version=5, connect_timeout=20))


URI = "spiffe://espalier.test/ada"
NOBODY = ("", "")


def authenticator(name: str) -> str:
    return f"{{class_name: {name}, parameters: {{validator_class_name: SpiffeCertificateValidator}}}}"


def identities(checks: Checks, node, directory: Path) -> None:
    """A client with a certificate has the role of its identity; one without a certificate has a password."""
    identity(directory, "ada", "authority", URI)
    with checks.part("identities"):
        with connect(node, directory, None, login=("cassandra", "cassandra")) as cluster:
            session = cluster.connect()
            refused(checks, "an unknown identity", node, directory, "ada", "not authorized")
            session.execute("CREATE ROLE ada WITH LOGIN = true")
            session.execute(f"ADD IDENTITY '{URI}' TO ROLE 'ada'")
            checks.equal("the role of a new identity", roles(node, directory, "ada"), ["ada"])
            session.execute(f"DROP IDENTITY '{URI}'")
            refused(checks, "a dropped identity", node, directory, "ada", "not authorized")
            session.execute(f"ADD IDENTITY '{URI}' TO ROLE 'ada'")
        checks.equal("the role of a certificate", roles(node, directory, "ada"), ["ada"])
        refused(checks, "a certificate without an identity", node, directory, "client", "Unable to extract client identity")
        refused(checks, "a wrong password", node, directory, None, "password are incorrect", ("cassandra", "wrong"))


def certificates_only(checks: Checks, node, directory: Path) -> None:
    with checks.part("certificates only"):
        checks.equal("the role of a certificate after a restart", roles(node, directory, "ada"), ["ada"])
        refused(checks, "a password beside a certificate", node, directory, "client", "Unable to extract client identity",
                ("cassandra", "cassandra"))


def roles(node, directory: Path, name: str) -> list[str]:
    with connect(node, directory, name, login=NOBODY) as cluster:
        return [row.role for row in cluster.connect().execute("LIST ROLES")]


def refused(checks: Checks, what: str, node, directory: Path, name: str | None, text: str, login=NOBODY) -> None:
    with connect(node, directory, name, login=login) as cluster:
        checks.raises(what, NoHostAvailable, text, cluster.connect)


def works(checks: Checks, name: str, cluster: Cluster) -> None:
    """Large values there and back, on every connection of the driver."""
    try:
        session = cluster.connect()
        session.execute("CREATE KEYSPACE IF NOT EXISTS tls WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE IF NOT EXISTS tls.t (k int PRIMARY KEY, v blob)")
        insert = session.prepare("INSERT INTO tls.t (k, v) VALUES (?, ?)")
        values = {key: bytes([key]) * size for key, size in enumerate((0, 1, 16_384, 200_000, 4_000_000))}
        for future in [session.execute_async(insert, [key, value]) for key, value in values.items()]:
            future.result()
        checks.equal(f"{name}: values", {row.k: row.v for row in session.execute("SELECT k, v FROM tls.t")}, values)
    finally:
        cluster.shutdown()


def cqlsh(checks: Checks, node, directory: Path) -> None:
    settings = directory / "cqlshrc"
    settings.write_text(f"[ssl]\ncertfile = {directory}/authority.pem\nvalidate = true\nuserkey = {directory}/client.key\n"
                        f"usercert = {directory}/client.pem\n")
    command = [str(CQLSH), "--ssl", "--cqlshrc", str(settings), node.host, str(node.port), "-e", "SELECT key FROM system.local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    checks.true("cqlsh --ssl", done.returncode == 0 and "local" in done.stdout, done.stdout + done.stderr)


if __name__ == "__main__":
    main()
