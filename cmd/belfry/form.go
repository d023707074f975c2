package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/sheet"
)

// form is one in which a result is shown.
type form string

// The forms. What is not a list is a text for people; what is, is a table.
const (
	asText  form = "text"
	asTable form = "table"
	asJSON  form = "json"
	asCSV   form = "csv"
)

// output is the form in which a command shows its result, as its flags say.
type output struct {
	form    form
	forms   []form // those there are, the first where none is asked for
	bare    bool   // no headings
	records *sheet.Records
}

// addOutput adds the flags of a result that is no list.
func addOutput(cmd *cobra.Command) *output { return addForms(cmd, nil, asText, asJSON) }

// addListOutput adds those of a list with such records.
func addListOutput(cmd *cobra.Command, records *sheet.Records) *output {
	return addForms(cmd, records, asTable, asJSON, asCSV)
}

// addOperationOutput adds those of an operation.
func addOperationOutput(cmd *cobra.Command, o admin.Operation) *output {
	switch {
	case o.Records() == nil:
		return addOutput(cmd)
	case !o.Told():
		return addForms(cmd, o.Records(), asCSV, asJSON)
	}
	return addListOutput(cmd, o.Records())
}

func addForms(cmd *cobra.Command, records *sheet.Records, forms ...form) *output {
	out := &output{form: forms[0], forms: forms, records: records}
	flags := cmd.Flags()
	flags.VarP(&formFlag{out, ""}, "output", "o", fmt.Sprintf("%s (default %s)", strings.Join(out.names(), ", "), forms[0]))
	flags.VarPF(&formFlag{out, asJSON}, "json", "", "short for -o json").NoOptDefVal = "true"
	if records != nil {
		flags.BoolVar(&out.bare, "no-headers", false, "leave the headings of the columns out")
		cmd.PreRunE = out.check
	}
	return out
}

// outputOf is what addForms added to a command.
func outputOf(cmd *cobra.Command) *output {
	flag, is := cmd.Flags().Lookup("output").Value.(*formFlag)
	if !is {
		panic(cmd.CommandPath() + " has an --output of its own")
	}
	return flag.out
}

// check refuses what does not go together.
func (out *output) check(*cobra.Command, []string) error {
	if out.bare && out.form == asJSON {
		return usagef("--no-headers: JSON has no headings; leave it out, or choose -o %s", strings.Join(slices.DeleteFunc(out.names(), func(f string) bool { return f == string(asJSON) }), " or -o "))
	}
	return nil
}

func (out *output) names() []string {
	names := make([]string, len(out.forms))
	for i, f := range out.forms {
		names[i] = string(f)
	}
	return names
}

// json reports whether documents are wanted.
func (out *output) json() bool { return out.form == asJSON }

// forPeople reports whether a person reads it.
func (out *output) forPeople() bool { return out.form == asTable || out.form == asText }

// pageOf is where a result is told to a person in its form.
func (a *app) pageOf(out *output) *printer.Page {
	page := a.page()
	page.Bare = out.bare
	return page
}

// formFlag is --output, or a switch for one form. The last of them counts.
type formFlag struct {
	out *output
	of  form // of a switch
}

// Set understands the flag's value.
func (f *formFlag) Set(text string) error {
	if f.of != "" {
		on, err := strconv.ParseBool(text)
		switch {
		case err != nil:
			return fmt.Errorf("allowed values: true, false")
		case on:
			f.out.form = f.of
		case f.out.form == f.of:
			f.out.form = f.out.forms[0]
		}
		return nil
	}
	if names := f.out.names(); !slices.Contains(names, text) {
		return fmt.Errorf("allowed values: %s%s", strings.Join(names, ", "), config.Hint(text, names))
	}
	f.out.form = form(text)
	return nil
}

// choices are the forms, of --output.
func (f *formFlag) choices() []string { return f.out.names() }

// String is nothing, so that help shows no default of its own.
func (f *formFlag) String() string { return "" }

// Type is what help shows.
func (f *formFlag) Type() string {
	if f.of != "" {
		return "bool"
	}
	return "FORM"
}

// csvRows are the rows of a list as they come.
type csvRows struct {
	out  *output
	into *sheet.Writer
	head bool // the headings are out
	live bool // a terminal shows the rows
}

// newRows begins CSV on standard output.
func (a *app) newRows(out *output) *csvRows {
	_, live := onTerminal(a.stdout)
	return &csvRows{out: out, into: sheet.NewWriter(a.stdout), head: out.bare, live: live}
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

// row adds a row. A file has its bytes as they are stored, a terminal none that it obeys.
func (r *csvRows) row(cells ...string) error {
	if r.live {
		for i, cell := range cells {
			cells[i] = printer.Clean(cell)
		}
	}
	return r.into.Row(cells...)
}

// end writes the headings where nothing came, and hands everything over.
func (r *csvRows) end() error {
	if err := r.add([]any{}); err != nil {
		return err
	}
	return r.into.Flush()
}

// remarkNextPage says how to get the rest of a list of which this is a page.
func (a *app) remarkNextPage(o admin.Operation, out any) {
	list, is := out.(interface{ NextPage() string })
	if !is || list.NextPage() == "" {
		return
	}
	for _, p := range o.Params() {
		if slices.Contains(admin.Pagers(), p.Name) {
			a.remark("there are more: --%s %s shows the next page", p.Flag, printer.ShellWord(list.NextPage()))
		}
	}
}

// printList writes a list for programs.
func (a *app) printList(out *output, list any) error {
	if out.json() {
		return a.printJSON(list)
	}
	return a.printRows(out, list)
}

// printRows writes a list as CSV.
func (a *app) printRows(out *output, records any) error {
	rows := a.newRows(out)
	if err := rows.add(records); err != nil {
		return err
	}
	return rows.end()
}
