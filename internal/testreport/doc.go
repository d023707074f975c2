// Command testreport runs the test suite for a person to read and a machine to
// count. It turns the event stream of `go test -json` into one line per
// package and the output of what failed, as they come, and closes with every
// skipped test by name and the counts on a line of their own:
//
//	ok    github.com/belfryhq/belfry/cursor  1.84s  61 passed
//	FAIL  github.com/belfryhq/belfry/job     9.12s  88 passed, 1 failed
//	…
//	12 passed, 0 failed, 1 skipped
//
// Usage:
//
//	testreport [-skip NAME]… [COMMAND ARGUMENT…]
//
// With a command (`testreport go test -json ./...`) it runs it and reads its
// standard output; without one it reads standard input. -skip records a part
// of the suite that the caller left out, such as a race detector that the
// machine cannot build; it is listed and counted like a skipped test.
//
// The exit status is 0 only if everything that was started has passed:
//
//  1. A test, a package or a build that failed makes it 1.
//  2. A package or test that started and never ended (a panic, a timeout, a
//     killed process, a truncated stream) counts as failed.
//  3. A stream in which no test was run counts as failed, so that a mistyped
//     pattern does not pass.
//  4. The command's own failure makes it 1 even if every event says pass.
//  5. With CI=true in the environment a skip makes it 1: what CI calls green
//     has all been run.
//
// Subtests and examples count beside the tests that contain them. The output
// of passing tests is dropped as soon as they end, so memory is bounded by
// what the tests that run at the same time print.
//
// It does not promise to understand output that the tested code writes into
// the middle of a line of the test's own: what is not an event is passed
// through unchanged. Benchmarks are not reported on.
package main
