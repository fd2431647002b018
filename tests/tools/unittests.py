"""unittests.py MODULE...: runs the test suites of modules, made by their own `suite()`. Prints a line for each test like
`pytest -rA`: the outcome and the name."""

import importlib
import io
import sys
import unittest


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        # Some tests forget their name.
        self.name = test.id()

    def outcome(self, word):
        print(word, self.name, flush=True)

    def addSuccess(self, test):
        self.outcome("PASSED")

    def addFailure(self, test, error):
        self.outcome("FAILED")

    def addError(self, test, error):
        self.outcome("ERROR")

    def addSkip(self, test, reason):
        self.outcome("SKIPPED")


for module in sys.argv[1:]:
    suite = importlib.import_module(module).suite()
    runner = unittest.TextTestRunner(stream=io.StringIO(), resultclass=lambda *_: Result())
    runner.run(suite)
