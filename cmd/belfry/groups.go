package main

import "github.com/spf13/cobra"

// helpGroup is a section of `belfry help`.
type helpGroup struct {
	id, title string
	commands  []*cobra.Command
}

// groupTools is the group of the commands that cobra adds.
const groupTools = "tools"

// helpGroups returns the commands of belfry, in the order of its help.
func helpGroups(a *app) []helpGroup {
	return []helpGroup{
		{"jobs", "Jobs:", []*cobra.Command{
			newVerbCommand(a, "enqueue"), newNounCommand(a, "jobs"), newVerbCommand(a, "abort"), newVerbCommand(a, "resume"),
			newVerbCommand(a, "retry"), newVerbCommand(a, "recall"), newVerbCommand(a, "status"), newVerbCommand(a, "health"),
			newVerbCommand(a, "halt"), newVerbCommand(a, "unhalt"), newNounCommand(a, "lanes"), newNounCommand(a, "schedules"),
			newVerbCommand(a, "upcoming"), newNounCommand(a, "categories"), newNounCommand(a, "limits"),
		}},
		{"delivery", "Delivery:", []*cobra.Command{
			newVerbCommand(a, "send"), newNounCommand(a, "dead-letters"), newNounCommand(a, "senders"), newNounCommand(a, "transport"),
		}},
		{"recipients", "Recipients:", []*cobra.Command{
			newNounCommand(a, "channels", newImportCommand(a), newGenerateCommand(a), newNounCommand(a, "channels segment")),
		}},
		{"people", "People and programs:", []*cobra.Command{
			newNounCommand(a, "users"), newNounCommand(a, "sessions"), newNounCommand(a, "tokens"), newVerbCommand(a, "roles"),
		}},
		{"processes", "Processes:", []*cobra.Command{newRunCommand(a), newDaemonCommand(a), newRelayCommand(a), newServeCommand(a)}},
		{"installation", "Installation:", []*cobra.Command{
			newMigrateCommand(a), newConfigCommand(a), newDoctorCommand(a), newNounCommand(a, "events"), newVerbCommand(a, "adopt"),
			newVerbCommand(a, "prune"), newVerbCommand(a, "samples"),
		}},
		{groupTools, "Tools:", []*cobra.Command{newFakeCommand(a), newDemoCommand(a), newManCommand(a), newAppCommand(a), newVersionCommand(a)}},
	}
}

// addGroups adds the commands to the program.
func addGroups(a *app, root *cobra.Command) {
	for _, g := range helpGroups(a) {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetCompletionCommandGroupID(groupTools)
	root.SetHelpCommandGroupID(groupTools)
}
