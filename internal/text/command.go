package text

import (
	"fmt"
	"slices"
	"strings"
)

// CommandCell is a command of belfry: an operation with its parameters. A terminal shows the shell
// line, a web page a link to the operation's page. Command makes it.
type CommandCell struct {
	Operation string   // its name, such as "lanes resume"
	Args      []string // its positional parameters
	Flags     []Flag
	Tail      string // the rest of the shell line, which the reader completes; "" means none
	Label     string // the link's text; "" means the shell line
	Short     bool   // a terminal, too, shows the label alone
}

// Flag is a parameter with a name.
type Flag struct {
	Name  string // without dashes
	Value string
	Alone bool // it is a switch, without a value
	Key   bool // it is written name=value
}

// Command returns a command: the name of an operation and its positional parameters.
func Command(operation string, args ...any) CommandCell {
	c := CommandCell{Operation: operation}
	for _, arg := range args {
		c.Args = append(c.Args, fmt.Sprint(arg))
	}
	return c
}

// Flag returns the command with one more flag. A flag without a value is a switch.
func (c CommandCell) Flag(name string, value ...any) CommandCell {
	f := Flag{Name: name, Alone: len(value) == 0}
	if !f.Alone {
		f.Value = fmt.Sprint(value...)
	}
	c.Flags = append(slices.Clone(c.Flags), f)
	return c
}

// Set returns the command with the change of one more key: key=value.
func (c CommandCell) Set(key, value string) CommandCell {
	c.Flags = append(slices.Clone(c.Flags), Flag{Name: key, Value: value, Key: true})
	return c
}

// Usage returns the command with parameters that the reader replaces, such as "NAME --role ROLE".
// A web page links to the empty form.
func (c CommandCell) Usage(tail string) CommandCell {
	c.Tail = tail
	return c
}

// To returns the command with its purpose, a verb phrase such as "resume the lane". A terminal
// shows the purpose, a colon and the shell line; a web page shows the purpose as a link.
func (c CommandCell) To(purpose string) CommandCell {
	c.Label = purpose
	return c
}

// As returns the command behind a label: a terminal shows the label alone, a web page the label as
// a link.
func (c CommandCell) As(label string) CommandCell {
	c.Label, c.Short = label, true
	return c
}

// Shell returns the command as a line for a shell.
func (c CommandCell) Shell() string {
	words := []string{"belfry", c.Operation}
	for _, arg := range c.Args {
		words = append(words, ShellWord(arg))
	}
	for _, f := range c.Flags {
		switch {
		case f.Key:
			words = append(words, f.Name+"="+ShellWord(f.Value))
		case f.Alone:
			words = append(words, "--"+f.Name)
		default:
			words = append(words, "--"+f.Name, ShellWord(f.Value))
		}
	}
	if c.Tail != "" {
		words = append(words, c.Tail)
	}
	return strings.Join(words, " ")
}

func (c CommandCell) in(Times) string {
	shell := "`" + c.Shell() + "`"
	switch {
	case c.Short:
		return c.Label
	case c.Label != "":
		return c.Label + ": " + shell
	}
	return shell
}

// String implements fmt.Stringer.
func (c CommandCell) String() string { return c.in(Times{}) }
