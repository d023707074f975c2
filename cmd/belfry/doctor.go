package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
)

// newDoctorCommand returns the command of the operation. It reports an invalid configuration and an
// unreachable database as findings instead of errors.
func newDoctorCommand(a *app) *cobra.Command {
	op := operationNamed("doctor")
	cmd := newOperationCommand(a, op)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		c := a.options(cmd)
		findings := findingsOf(c, err)
		if findings == nil {
			return err
		}
		return operationOptions{commandOptions: c, operation: op, input: op.NewInput(), out: outputOf(cmd)}.show(admin.ReportOf(findings))
	}
	return cmd
}

// findingsOf returns the findings for an error of the doctor, or nil if the error is none.
func findingsOf(c commandOptions, err error) (findings []admin.Finding) {
	s, invalid := c.settings()
	if invalid != nil {
		for _, line := range problemLines(invalid) {
			findings = append(findings, admin.Finding{Check: "configuration", Status: admin.HealthFailed, Detail: line, Remedy: "see `belfry help configuration` and config.yaml"})
		}
		return findings
	}
	if !errors.As(err, new(*unopenedError)) {
		return nil
	}
	return []admin.Finding{
		{Check: "configuration", Status: admin.HealthOK, Detail: filesRead(s) + " read"},
		{Check: "connection", Status: admin.HealthFailed, Detail: err.Error()},
	}
}
