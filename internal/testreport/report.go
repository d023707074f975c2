package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of `go test -json`, as `go doc test2json` describes it,
// with the two fields that the go command adds for builds.
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	ImportPath  string
	FailedBuild string
}

// report follows one stream. It is used from one goroutine.
type report struct {
	out      io.Writer
	err      error               // the first failed write; later writes are dropped
	running  map[string]*tested  // packages that started and have not ended, by import path
	builds   map[string][]string // what the compiler said, by the import path being built
	tests    int                 // tests that were started
	passed   int                 // tests that passed
	failures []string            // names of what failed, in the order in which it did
	skips    []string            // names of what was skipped, with the reason
}

// tested is one package under test, or one test in it.
type tested struct {
	started  bool               // of a test: it was run, rather than only spoken for
	output   []string           // lines not yet printed
	children map[string]*tested // of a package: its tests that have not ended
	coverage string
	passed   int
	failed   int
	skipped  int
}

func newReport(out io.Writer) *report {
	return &report{out: out, running: map[string]*tested{}, builds: map[string][]string{}}
}

// read follows the stream to its end. The error is a failure to read or to
// print; a failed test is none.
func (r *report) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		switch {
		case r.err != nil:
			return fmt.Errorf("print the report: %w", r.err)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the test events: %w", err)
		}
	}
}

func (r *report) line(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		r.printf("%s\n", strings.TrimSuffix(line, "\n"))
		return
	}
	switch e.Action {
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
		return
	case "build-fail":
		return // the packages that needed this build name it when they fail
	}
	if e.Package == "" {
		return
	}
	pkg := r.running[e.Package]
	if pkg == nil {
		pkg = &tested{children: map[string]*tested{}}
		r.running[e.Package] = pkg
	}
	if e.Test == "" {
		r.packageEvent(pkg, e)
		return
	}
	r.testEvent(pkg, e)
}

func (r *report) testEvent(pkg *tested, e event) {
	test := pkg.children[e.Test]
	if test == nil {
		test = &tested{}
		pkg.children[e.Test] = test
	}
	switch e.Action {
	case "run":
		if !strings.HasPrefix(e.Test, "Benchmark") { // a benchmark has no event for its end
			test.started = true
			r.tests++
		}
		return
	case "output":
		test.output = append(test.output, e.Output)
		return
	case "pass":
		r.passed++
		pkg.passed++
	case "fail":
		r.fail(pkg, e.Package+"."+e.Test)
		r.printOutput(e.Package, test.output)
	case "skip":
		r.skip(e.Package + "." + e.Test + reason(test.output))
		pkg.skipped++
	default: // pause, cont, attr and whatever later versions add change no count
		return
	}
	delete(pkg.children, e.Test)
}

func (r *report) packageEvent(pkg *tested, e event) {
	switch e.Action {
	case "output":
		if percent, ok := strings.CutPrefix(e.Output, "coverage: "); ok {
			pkg.coverage, _, _ = strings.Cut(percent, " of ")
		}
		pkg.output = append(pkg.output, e.Output)
		return
	case "pass":
		if slices.ContainsFunc(slices.Collect(maps.Values(pkg.children)), func(t *tested) bool { return t.started }) {
			r.packageFailed(pkg, e) // ended by something other than its tests
			break
		}
		r.printPackage("ok", pkg, e)
	case "skip":
		r.printPackage("--", pkg, e)
	case "fail":
		r.packageFailed(pkg, e)
	default:
		return
	}
	delete(r.running, e.Package)
}

// packageFailed prints what explains the failure: the output of tests that
// never ended, the compiler's, and what the package printed outside tests,
// such as the shuffle's seed or a leaked goroutine.
func (r *report) packageFailed(pkg *tested, e event) {
	for _, name := range slices.Sorted(maps.Keys(pkg.children)) {
		if pkg.children[name].started {
			r.fail(pkg, e.Package+"."+name+" (did not end)")
		}
		r.printOutput(e.Package, pkg.children[name].output)
	}
	if e.FailedBuild != "" {
		r.fail(pkg, e.Package+" (build)")
		r.printOutput(e.FailedBuild, r.builds[e.FailedBuild])
		delete(r.builds, e.FailedBuild)
	} else if pkg.failed == 0 {
		r.fail(pkg, e.Package)
	}
	r.printOutput(e.Package, pkg.output)
	r.printPackage("FAIL", pkg, e)
}

// end judges what the stream left open. It must be called once, after read.
func (r *report) end() {
	for _, name := range slices.Sorted(maps.Keys(r.running)) {
		pkg := r.running[name]
		pkg.output = append(pkg.output, "the test events ended before the package did\n")
		r.packageFailed(pkg, event{Package: name})
	}
	clear(r.running)
	if r.tests == 0 && len(r.failures) == 0 {
		r.failures = append(r.failures, "no test was run")
	}
}

// summarise prints what failed, what was skipped and the counts.
func (r *report) summarise() {
	r.printf("\n")
	for _, name := range r.failures {
		r.printf("failed: %s\n", name)
	}
	for _, name := range r.skips {
		r.printf("skipped: %s\n", name)
	}
	r.printf("%s\n", counts(r.passed, len(r.failures), len(r.skips)))
}

func (r *report) fail(pkg *tested, name string) {
	pkg.failed++
	r.failures = append(r.failures, name)
}

func (r *report) skip(name string) { r.skips = append(r.skips, name) }

func (r *report) printPackage(verdict string, pkg *tested, e event) {
	detail := "no test files"
	if e.Action != "skip" {
		detail = fmt.Sprintf("%.2fs  %s", e.Elapsed, packageCounts(pkg))
	}
	if pkg.coverage != "" {
		detail += "  " + pkg.coverage + " covered"
	}
	r.printf("%-4s  %s  %s\n", verdict, e.Package, detail)
}

// printOutput prints the lines that say something, under the name of where
// they come from; nothing if there are none.
func (r *report) printOutput(source string, output []string) {
	output = telling(output)
	if len(output) == 0 {
		return
	}
	r.printf("==    %s\n%s", source, strings.Join(output, ""))
	if !strings.HasSuffix(output[len(output)-1], "\n") {
		r.printf("\n")
	}
}

func (r *report) printf(format string, values ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.out, format, values...)
	}
}

// telling leaves out the lines with which the testing package keeps its own
// books; the report says the same in its own words.
func telling(output []string) []string {
	return slices.DeleteFunc(slices.Clone(output), func(line string) bool {
		return line == "PASS\n" || line == "FAIL\n" ||
			strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "FAIL\t") ||
			strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "coverage: ")
	})
}

// reason finds what a skipped test gave as its reason, in one line, with the
// place first, as the testing package prints it.
func reason(output []string) string {
	var said []string
	for _, line := range telling(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--- SKIP") {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return ": " + strings.Join(said, " ")
}

func counts(passed, failed, skipped int) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
}

// packageCounts is counts without the zeros that a reader would skip.
func packageCounts(pkg *tested) string {
	text := fmt.Sprintf("%d passed", pkg.passed)
	if pkg.failed > 0 {
		text += fmt.Sprintf(", %d failed", pkg.failed)
	}
	if pkg.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", pkg.skipped)
	}
	return text
}
