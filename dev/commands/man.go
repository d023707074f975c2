package commands

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Man writes the manual pages of root and its subcommands to a directory, and returns their number.
// It is not cobra/doc, whose pages lack the list of subcommands, the names of the flags' values and
// the help topics.
func Man(root *cobra.Command, directory, version string) (int, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return 0, err
	}
	list := manCommands(root)
	for _, c := range list {
		var page strings.Builder
		manPage(&page, c, version)
		path := filepath.Join(directory, manName(c)+".1")
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil { //nolint:gosec // manual pages are public
			return 0, err
		}
	}
	return len(list), nil
}

// manCommands returns the commands with a page: those that help lists, and its topics.
func manCommands(c *cobra.Command) (list []*cobra.Command) {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	list = append(list, c)
	for _, sub := range c.Commands() {
		list = append(list, manCommands(sub)...)
	}
	return list
}

// manName returns the name of a command's page.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage writes the page of a command from its help. The page has no date, so that builds are
// reproducible.
func manPage(w io.Writer, c *cobra.Command, version string) {
	name := manName(c)
	fmt.Fprintf(w, ".TH %q \"1\" \"\" \"belfry %s\" \"belfry manual\"\n", strings.ToUpper(name), version)
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	if c.Runnable() || c.HasSubCommands() {
		usage := c.UseLine()
		if c.HasSubCommands() {
			usage = c.CommandPath() + " COMMAND"
		}
		fmt.Fprintf(w, ".SH SYNOPSIS\n%s\n", roffLine(usage))
	}
	if c.Long != "" {
		fmt.Fprint(w, ".SH DESCRIPTION\n")
		manText(w, c.Long)
	}
	if subs := manSubs(c); len(subs) > 0 {
		fmt.Fprint(w, ".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(sub.Name()), roffLine(sub.Short))
		}
	}
	manFlags(w, "OPTIONS", c.NonInheritedFlags())
	manFlags(w, "OPTIONS OF EVERY COMMAND", c.InheritedFlags())
	if c.Example != "" {
		fmt.Fprint(w, ".SH EXAMPLES\n")
		manVerbatim(w, strings.Split(strings.TrimSuffix(c.Example, "\n"), "\n"))
	}
	fmt.Fprint(w, ".SH SEE ALSO\n")
	var also []string
	if c.HasParent() {
		also = append(also, manName(c.Parent()))
	}
	for _, sub := range manSubs(c) {
		also = append(also, manName(sub))
	}
	for i, page := range also {
		also[i] = fmt.Sprintf("\\fB%s\\fP(1)", roff(page))
	}
	fmt.Fprintf(w, "%s\n", strings.Join(also, ", "))
}

func manSubs(c *cobra.Command) (list []*cobra.Command) {
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			list = append(list, sub)
		}
	}
	return list
}

// manFlags writes a section about flags.
func manFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(w, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		label, usage := pflag.UnquoteUsage(f)
		head := "\\fB" + roff("--"+f.Name) + "\\fP"
		if f.Shorthand != "" {
			head = "\\fB" + roff("-"+f.Shorthand) + "\\fP, " + head
		}
		if label != "" {
			head += " \\fI" + roff(label) + "\\fP"
		}
		fmt.Fprintf(w, ".TP\n%s\n%s\n", head, roffLine(usage))
	})
}

// manText writes paragraphs. A paragraph with an indented line is verbatim.
func manText(w io.Writer, text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			fmt.Fprint(w, ".PP\n")
		}
		lines := strings.Split(paragraph, "\n")
		if strings.Contains("\n"+paragraph, "\n ") {
			manVerbatim(w, lines)
			continue
		}
		for _, line := range lines {
			fmt.Fprintln(w, roffLine(line))
		}
	}
}

func manVerbatim(w io.Writer, lines []string) {
	fmt.Fprint(w, ".nf\n")
	for _, line := range lines {
		fmt.Fprintln(w, roffLine(line))
	}
	fmt.Fprint(w, ".fi\n")
}

// roff escapes a text.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(text)
}

// roffLine escapes a line, so that it is not a request.
func roffLine(text string) string {
	text = roff(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}
