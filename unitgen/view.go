package unitgen

import "slices"

// FileView returns the settings of a unit that decide as whom its commands run and which files they see, as KEY=VALUE:
// with them another unit can look at a model the way the engine will (systemd.exec(5)).
func FileView(unit []byte) []string {
	keys := []string{"User", "Group", "DynamicUser", "SupplementaryGroups", "ProtectSystem", "ProtectHome", "PrivateTmp",
		"PrivateUsers", "PrivateMounts", "NoNewPrivileges", "CapabilityBoundingSet"}
	var settings []string
	for _, d := range parse(unit) {
		if d.section == "[Service]" && slices.Contains(keys, d.key) {
			settings = append(settings, d.key+"="+d.value)
		}
	}
	return settings
}
