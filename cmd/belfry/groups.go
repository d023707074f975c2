package main

import "github.com/spf13/cobra"

// helpGroup is a part of `belfry help`: what is about one thing.
type helpGroup struct {
	id, title string
	commands  []*cobra.Command
}

// groupTools is the group of what cobra adds.
const groupTools = "tools"

// groups are the commands of belfry, in the order of its help.
func (a *app) groups() []helpGroup {
	return []helpGroup{
		{"jobs", "Jobs:", []*cobra.Command{
			a.verbCommand("enqueue"), a.nounCommand("jobs"), a.verbCommand("abort"), a.verbCommand("resume"), a.verbCommand("retry"), a.verbCommand("recall"),
			a.verbCommand("status"), a.verbCommand("health"), a.verbCommand("halt"), a.verbCommand("unhalt"), a.nounCommand("lanes"), a.nounCommand("schedules"), a.verbCommand("upcoming"), a.nounCommand("categories"), a.nounCommand("limits"),
		}},
		{"delivery", "Delivery:", []*cobra.Command{
			a.verbCommand("send"), a.nounCommand("dead-letters"), a.nounCommand("senders"), a.nounCommand("transport"),
		}},
		{"recipients", "Recipients:", []*cobra.Command{newChannelsCommand(a)}},
		{"people", "People and programs:", []*cobra.Command{
			a.nounCommand("users"), a.nounCommand("sessions"), a.nounCommand("tokens"), a.verbCommand("roles"),
		}},
		{"processes", "Processes:", []*cobra.Command{newRunCommand(a), newDaemonCommand(a), newRelayCommand(a), newServeCommand(a)}},
		{"installation", "Installation:", []*cobra.Command{
			newMigrateCommand(a), newConfigCommand(a), newDoctorCommand(a), a.nounCommand("events"), a.verbCommand("adopt"), a.verbCommand("prune"),
		}},
		{groupTools, "Tools:", []*cobra.Command{newFakeCommand(a), newDemoCommand(a), newManCommand(a), newVersionCommand(a)}},
	}
}

// addGroups adds them to the program.
func (a *app) addGroups(root *cobra.Command) {
	for _, g := range a.groups() {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetCompletionCommandGroupID(groupTools)
	root.SetHelpCommandGroupID(groupTools)
}
