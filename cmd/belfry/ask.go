package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// agreed asks a person at a terminal; without one nobody agrees. A signal ends the question.
func (a *app) agreed(ctx context.Context, question string) (bool, error) {
	if _, ok := terminal(a.stderr, a.environ); !ok || !term.IsTerminal(int(os.Stdin.Fd())) {
		return false, nil
	}
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a terminal's read cannot be cut short: after a signal it ends with the process
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			line = "" // the terminal went away, or end of file: no answer
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return false, context.Cause(ctx)
	case said := <-answer:
		return said == "y" || said == "yes", nil
	}
}
