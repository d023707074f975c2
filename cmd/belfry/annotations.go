package main

import (
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin/operation"
)

// readOnlyCommands are the hand-written commands that only read. These and the operations that change
// nothing accept a standby; all others need a primary, even for a dry run.
var readOnlyCommands = map[string]bool{"belfry migrate status": true, "belfry migrate plan": true}

// creatingCommands may create the private server, in addition to the processes. All others need an existing one.
var creatingCommands = map[string]bool{
	"belfry migrate up": true, "belfry channels generate": true, "belfry channels import": true, "belfry enqueue": true,
	"belfry demo": true, "belfry demo-app": true,
}

// readsAnnotation marks the command of an operation that changes nothing.
const readsAnnotation = "belfry_reads"

// operationAnnotation contains the name of a command's operation.
const operationAnnotation = "belfry_operation"

// annotationsOf returns the annotations of an operation's command.
func annotationsOf(o operation.Operation) map[string]string {
	if o.Changes {
		return map[string]string{operationAnnotation: o.Name}
	}
	return map[string]string{operationAnnotation: o.Name, readsAnnotation: "true"}
}

// onlyReads reports whether a command changes nothing.
func onlyReads(cmd *cobra.Command) bool {
	return readOnlyCommands[cmd.CommandPath()] || cmd.Annotations[readsAnnotation] != ""
}

// discards reports whether a command removes something. It is not suggested for a misspelt one.
func discards(cmd *cobra.Command) bool {
	name := cmd.Annotations[operationAnnotation]
	return cmd.CommandPath() == "belfry migrate down" || name != "" && operationNamed(name).Discards()
}
