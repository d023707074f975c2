package main

import (
	"errors"

	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/spf13/cobra"
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
		return operationOptions{commandOptions: c, operation: op, input: op.NewInput(), out: outputOf(cmd)}.show(doctor.ReportOf(findings))
	}
	return cmd
}

// findingsOf returns the findings for an error of the doctor, or nil if the error is none.
func findingsOf(c commandOptions, err error) (findings []doctor.Finding) {
	s, invalid := c.settings()
	if invalid != nil {
		for _, line := range config.Lines(invalid) {
			findings = append(findings, doctor.Finding{Check: "configuration", Status: doctor.HealthFailed, Detail: text.Sprintf("%s", line),
				Remedy: text.Sprintf("see %s and config.yaml", text.Command("help configuration"))})
		}
		return findings
	}
	if !errors.As(err, new(*unopenedError)) {
		return nil
	}
	return []doctor.Finding{
		{Check: "configuration", Status: doctor.HealthOK, Detail: text.Sprintf("%s read", s.FilesRead())},
		{Check: "connection", Status: doctor.HealthFailed, Detail: text.Sprintf("%s", err)},
	}
}
