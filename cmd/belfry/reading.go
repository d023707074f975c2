package main

import "github.com/spf13/cobra"

// reading are the commands that only read. They take a standby; all others ask for a server
// that takes rows, for a dry run too. adopt writes only where it is asked to.
var reading = map[string]bool{
	"belfry adopt":                 true,
	"belfry categories events":     true,
	"belfry categories list":       true,
	"belfry channels check":        true, // what it brings in step was brought so on the primary, as a rule
	"belfry channels count":        true,
	"belfry channels opt-outs":     true,
	"belfry channels segment list": true,
	"belfry dead-letters events":   true,
	"belfry dead-letters list":     true,
	"belfry dead-letters show":     true,
	"belfry jobs audit":            true,
	"belfry jobs events":           true,
	"belfry jobs list":             true,
	"belfry jobs preview":          true,
	"belfry jobs report":           true,
	"belfry jobs revisions":        true,
	"belfry jobs show":             true,
	"belfry jobs skips":            true,
	"belfry jobs watch":            true,
	"belfry lanes events":          true,
	"belfry lanes list":            true,
	"belfry limits events":         true,
	"belfry limits list":           true,
	"belfry migrate status":        true,
	"belfry schedules events":      true,
	"belfry schedules list":        true,
	"belfry schedules next":        true,
	"belfry schedules show":        true,
	"belfry senders events":        true,
	"belfry senders list":          true,
	"belfry transport status":      true,
}

func onlyReads(cmd *cobra.Command) bool { return reading[cmd.CommandPath()] }
