package main

import (
	"github.com/spf13/cobra"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl"
	"vllmhost/hostctl/shm"
)

func newCleanCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Free shared memory that engines left behind",
		Long: `Lists the files in the host's /dev/shm that engines may have left, with the memory that each takes, and why it stays or may
go. A file may go only if its name is one that engines make, it belongs to the user of an instance, it is a regular file,
nobody has it open or mapped, its maker is gone, and no instance of that user runs with the host's /dev/shm. Only
instances with shm = "host" leave any; a start of such a one cleans up after its own user by itself.`,
		Example: `  vllmhost clean
  vllmhost clean --yes`,
		Annotations: exits(exitDone, exitFailed),
		GroupID:     groupServing,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			found, removed, err := host.Clean(cmd.Context(), yes)
			if found == nil && err != nil {
				return hostError(err)
			}
			if a.ui.JSONOnly {
				if err := a.ui.JSON(cleanJSON(found, removed)); err != nil {
					return err
				}
			} else {
				printClean(a.ui, found, removed, yes)
			}
			if err != nil {
				return fail(exitFailed, err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "remove what may go")
	return cmd
}

// cleanReport is the JSON of clean.
type cleanReport struct {
	Schema       string      `json:"schema"`
	Changed      bool        `json:"changed"`
	Files        []cleanFile `json:"files"`
	StaleBytes   int64       `json:"stale_bytes"`
	RemovedBytes int64       `json:"removed_bytes"`
}

type cleanFile struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	UID     int    `json:"uid"`
	Family  string `json:"family"`
	Stale   bool   `json:"stale"`
	Removed bool   `json:"removed"`
	Why     string `json:"why"`
}

func cleanJSON(found, removed []shm.File) cleanReport {
	r := cleanReport{Schema: "vllmhost/clean/v1", Changed: len(removed) > 0, Files: []cleanFile{}, RemovedBytes: sum(removed)}
	gone := map[string]bool{}
	for _, f := range removed {
		gone[f.Name] = true
	}
	for _, f := range found {
		r.Files = append(r.Files, cleanFile{"/dev/shm/" + f.Name, f.Bytes, f.UID, f.Family, f.Stale, gone[f.Name], f.Why})
		if f.Stale {
			r.StaleBytes += f.Bytes
		}
	}
	return r
}

func printClean(ui *term.Printer, found, removed []shm.File, yes bool) {
	var stale []shm.File
	var rows [][]string
	for _, f := range found {
		verdict := "keep: " + f.Why
		if f.Stale {
			verdict = "remove: " + f.Why
			stale = append(stale, f)
		}
		rows = append(rows, []string{"/dev/shm/" + f.Name, term.Size(f.Bytes), verdict})
	}
	if len(rows) > 0 {
		ui.Table([]string{"FILE", "MEMORY", "VERDICT"}, rows)
		ui.Line("")
	}
	switch {
	case len(found) == 0:
		ui.Line("Nothing that engines make is in /dev/shm.")
	case yes:
		ui.Line("Removed %s, %s.", count(len(removed), "file"), term.Size(sum(removed)))
	case len(stale) == 0 && !hostctl.IsRoot():
		ui.Line("Nothing is proven stale; as root, more can be seen: sudo vllmhost clean")
	case len(stale) == 0:
		ui.Line("Nothing is stale.")
	default:
		ui.Line("%s could be freed. Nothing was removed; to remove: vllmhost clean --yes", term.Size(sum(stale)))
	}
}

func sum(files []shm.File) (bytes int64) {
	for _, f := range files {
		bytes += f.Bytes
	}
	return bytes
}
