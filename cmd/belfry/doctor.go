package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
)

// newDoctorCommand is the operation's, but where others end with an error the doctor has a
// finding: of a configuration that cannot be used, and of a database that does not answer.
func newDoctorCommand(a *app) *cobra.Command {
	o := operationNamed("doctor")
	cmd := a.operationCommand(o)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		findings := a.undiagnosed(cmd, err)
		if findings == nil {
			return err
		}
		return a.show(o, o.NewInput(), admin.ReportOf(findings), outputOf(cmd))
	}
	return cmd
}

// undiagnosed is what an error of the doctor's says of the installation; nil: nothing.
func (a *app) undiagnosed(cmd *cobra.Command, err error) (findings []admin.Finding) {
	s, wrong := a.settings(cmd)
	if wrong != nil {
		for _, line := range problemLines(wrong) {
			findings = append(findings, admin.Finding{Check: "configuration", Status: admin.HealthFailed, Detail: line, Remedy: "see `belfry help configuration` and config.yaml"})
		}
		return findings
	}
	if !errors.As(err, new(*unopenedError)) {
		return nil
	}
	return []admin.Finding{
		{Check: "configuration", Status: admin.HealthOK, Detail: readFrom(s) + " read"},
		{Check: "connection", Status: admin.HealthFailed, Detail: err.Error()},
	}
}

// unopenedError is why a database could not be opened.
type unopenedError struct{ err error }

func (e *unopenedError) Error() string { return e.err.Error() }
func (e *unopenedError) Unwrap() error { return e.err }
