package main

import (
	"github.com/spf13/cobra"

	"vllmhost/conf"
)

func newCheckCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the profile",
		Long: `Reads the profile and says what is wrong with it: all problems at once, each with its place and what to write instead.
It looks at no unit and changes nothing.`,
		Example: `  vllmhost check
  vllmhost check --profile ./host.toml
  vllmhost check --json`,
		Annotations: exits(exitDone, exitProfile),
		GroupID:     groupProfile,
		RunE: func(cmd *cobra.Command, args []string) error {
			profile, problems := conf.Load(a.profile)
			if a.ui.JSONOnly {
				if err := a.ui.JSON(checkReport{"vllmhost/check/v1", !problems.HasErrors(), append(conf.Diagnostics{}, problems...)}); err != nil {
					return err
				}
			}
			for _, d := range problems {
				a.ui.Text(d.String())
			}
			switch {
			case problems.HasErrors():
				a.ui.Line("%s. Nothing was changed.", problems.Summary())
				return end(exitProfile)
			case len(problems) > 0:
				a.ui.Line("%s. The profile can be applied: vllmhost apply", problems.Summary())
			default:
				a.ui.Line("%s: %s, no problems. To apply it: vllmhost apply", a.profile, count(len(profile.Instances), "instance"))
			}
			return nil
		},
	}
}

// checkReport is the JSON of check.
type checkReport struct {
	Schema   string           `json:"schema"`
	OK       bool             `json:"ok"`
	Problems conf.Diagnostics `json:"problems"`
}
