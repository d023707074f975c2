package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// format is a format of a result.
type format string

// The formats. For people a list is a table and any other result a text.
const (
	asText  format = "text"
	asTable format = "table"
	asJSON  format = "json"
	asCSV   format = "csv"
)

// output is the format in which a command shows its result, from its flags.
type output struct {
	format  format
	formats []format // of the command, the default first
	bare    bool     // no headings
	records *text.Records
}

// addOutput adds the flags of a result that is not a list.
func addOutput(cmd *cobra.Command) *output { return addFormats(cmd, nil, asText, asJSON) }

// addListOutput adds the flags of a list of records.
func addListOutput(cmd *cobra.Command, records *text.Records) *output {
	return addFormats(cmd, records, asTable, asJSON, asCSV)
}

// addOperationOutput adds the flags of an operation's result.
func addOperationOutput(cmd *cobra.Command, o operation.Operation) *output {
	switch {
	case o.Records() == nil:
		return addOutput(cmd)
	case !o.HasText():
		return addFormats(cmd, o.Records(), asCSV, asJSON)
	}
	return addListOutput(cmd, o.Records())
}

func addFormats(cmd *cobra.Command, records *text.Records, formats ...format) *output {
	out := &output{format: formats[0], formats: formats, records: records}
	flags := cmd.Flags()
	flags.VarP(&formatFlag{out, ""}, "output", "o", fmt.Sprintf("%s (default %s)", strings.Join(out.names(), ", "), formats[0]))
	flags.VarPF(&formatFlag{out, asJSON}, "json", "", "short for -o json").NoOptDefVal = "true"
	if records != nil {
		flags.BoolVar(&out.bare, "no-headers", false, "leave the headings of the columns out")
		cmd.PreRunE = out.check
	}
	return out
}

// outputOf returns the output of a command, or plain text if addFormats was not called for it.
func outputOf(cmd *cobra.Command) *output {
	if flag, is := cmd.Flags().Lookup("output").Value.(*formatFlag); is {
		return flag.out
	}
	return &output{format: asText}
}

// check rejects flags that exclude each other.
func (out *output) check(*cobra.Command, []string) error {
	if out.bare && out.format == asJSON {
		return usagef("--no-headers: JSON has no headings; leave it out, or choose -o %s",
			strings.Join(slices.DeleteFunc(out.names(), func(f string) bool { return f == string(asJSON) }), " or -o "))
	}
	return nil
}

func (out *output) names() []string {
	names := make([]string, len(out.formats))
	for i, f := range out.formats {
		names[i] = string(f)
	}
	return names
}

// json reports whether the format is JSON.
func (out *output) json() bool { return out.format == asJSON }

// forPeople reports whether the format is text for people.
func (out *output) forPeople() bool { return out.format == asTable || out.format == asText }

// pageOf returns a page that renders a result in the format of out.
func (x *streams) pageOf(out *output) *text.Terminal {
	page := x.page()
	page.Bare = out.bare
	return page
}

// formatFlag is --output, or a switch for one format. The last one on the command line wins.
type formatFlag struct {
	out *output
	of  format // of a switch
}

// Set parses the flag's value.
func (f *formatFlag) Set(text string) error {
	if f.of != "" {
		on, err := strconv.ParseBool(text)
		switch {
		case err != nil:
			return fmt.Errorf("allowed values: true, false")
		case on:
			f.out.format = f.of
		case f.out.format == f.of:
			f.out.format = f.out.formats[0]
		}
		return nil
	}
	if names := f.out.names(); !slices.Contains(names, text) {
		return fmt.Errorf("allowed values: %s%s", strings.Join(names, ", "), keys.Hint(text, names))
	}
	f.out.format = format(text)
	return nil
}

// choices are the formats, for completion.
func (f *formatFlag) choices() []string { return f.out.names() }

// String is empty, so that pflag shows no default.
func (f *formatFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *formatFlag) Type() string {
	if f.of != "" {
		return "bool"
	}
	return "FORMAT"
}

// csvRows writes the rows of a list when they arrive.
type csvRows struct {
	out  *output
	into *text.CSV
	head bool // the headings are written
	live bool // to a terminal
}

// newRows begins CSV on standard output.
func newRows(x *streams, out *output) *csvRows {
	_, live := onTerminal(x.stdout)
	return &csvRows{out: out, into: text.NewCSV(x.stdout), head: out.bare, live: live}
}

// add adds a record, or a slice of them.
func (r *csvRows) add(records any) error {
	if !r.head {
		r.head = true
		if err := r.into.Row(r.out.records.Names()...); err != nil {
			return err
		}
	}
	return r.out.records.Each(records, r.row)
}

// row adds a row. A file gets the stored bytes, a terminal no control characters.
func (r *csvRows) row(cells ...string) error {
	if r.live {
		for i, cell := range cells {
			cells[i] = text.Clean(cell)
		}
	}
	return r.into.Row(cells...)
}

// end flushes the rows, and writes the headings of an empty list.
func (r *csvRows) end() error {
	if err := r.add([]any{}); err != nil {
		return err
	}
	return r.into.Flush()
}

// remarkNextPage writes the flag that shows the next page of a list, if there is one.
func (o operationOptions) remarkNextPage(out any) {
	list, is := out.(interface{ NextPage() string })
	if !is || list.NextPage() == "" {
		return
	}
	for _, p := range o.operation.Params() {
		if slices.Contains(operation.Pagers(), p.Name) {
			o.remark("there are more: --%s %s shows the next page", p.Flag, text.ShellWord(list.NextPage()))
		}
	}
}

// printList writes a list as JSON or CSV.
func printList(x *streams, out *output, list any) error {
	if out.json() {
		return x.printJSON(list)
	}
	return printRows(x, out, list)
}

// printRows writes a list as CSV.
func printRows(x *streams, out *output, records any) error {
	rows := newRows(x, out)
	if err := rows.add(records); err != nil {
		return err
	}
	return rows.end()
}
