// What the lab prints: text for people, JSON for programs. Both end with a line end.
#pragma once

#include <string>
#include <vector>

#include "server/attention_lab.h"
#include "server/attention_lab_examples.h"

namespace vitrine::server {

// The example, its switches, and q, k and v.
std::string LabInputText(const LabSetup& setup);

// Scores, scaled scores, weights and output, step by step: of one query, key by key, or of all of
// them as tables. Uniform attention stands beside it as the baseline.
std::string LabQueryText(const LabSetup& setup, const LabResult& result, int query);
std::string LabTablesText(const LabSetup& setup, const LabResult& result);

std::string LabSweepText(const std::vector<SweepRow>& sweep);

// Keys with the largest weight of a row; several on a tie.
std::vector<int> LabTopKeys(const LabResult& result, int row);

// One object on one line; a masked score is null.
std::string LabJson(const LabSetup& setup, const LabResult& result);
std::string LabSweepJson(const std::vector<SweepRow>& sweep);

}  // namespace vitrine::server
