package main

import (
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
)

// reading are the commands that only read, beside the operations that change nothing. They
// take a standby; all others ask for a server that takes rows, for a dry run too.
var reading = map[string]bool{
	"belfry migrate status": true,
}

// readsAnnotation marks the command of an operation that changes nothing.
const readsAnnotation = "belfry_reads"

// operationAnnotation has the name of a command's operation.
const operationAnnotation = "belfry_operation"

// annotationsOf mark an operation's command.
func annotationsOf(o admin.Operation) map[string]string {
	if o.Changes {
		return map[string]string{operationAnnotation: o.Name}
	}
	return map[string]string{operationAnnotation: o.Name, readsAnnotation: "true"}
}

func onlyReads(cmd *cobra.Command) bool {
	return reading[cmd.CommandPath()] || cmd.Annotations[readsAnnotation] != ""
}

// discards reports whether a command removes something. A slip of the fingers does not lead to it.
func discards(cmd *cobra.Command) bool {
	name := cmd.Annotations[operationAnnotation]
	return cmd.CommandPath() == "belfry migrate down" || name != "" && operationNamed(name).Discards()
}
