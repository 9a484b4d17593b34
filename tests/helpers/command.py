"""The command `activebias`, run in this process."""

from typer.testing import CliRunner

from activebias.cli import app


def run(*arguments, code=0):
    """Run `activebias` with these arguments; it must end with the exit code `code`."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def words(text):
    """Return a text as one line, without the frame of a usage error."""
    return " ".join(text.replace("│", " ").split())
