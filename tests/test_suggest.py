"""Did-you-mean suggestions in error messages."""

import subprocess
import sys

from saccade.suggest import suggest


def test_a_misspelt_name_gets_the_nearest_one_and_the_whole_list():
    assert (
        suggest("transfomer", ["bert", "transformer", "t5"])
        == "did you mean 'transformer'? Known are bert, transformer, t5."
    )


def test_a_name_that_resembles_none_gets_only_the_list():
    assert suggest("zebra", ["bert", "t5"]) == "known are bert, t5."


def test_it_loads_no_torch():
    code = "import sys; import saccade.suggest; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
