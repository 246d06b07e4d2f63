-- Health of GovernedServers and ToolPolicies for Argo CD: the condition Ready, once the manager has looked at what was
-- applied. docs/gitops.md says where it goes.
local health = { status = "Progressing", message = "The manager has not looked at it yet" }
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration == nil or obj.status.observedGeneration < obj.metadata.generation then
  health.message = "The manager has not looked at the latest change yet"
  return health
end
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    health.message = condition.message
    if condition.status == "True" then
      health.status = "Healthy"
    elseif condition.status == "False" then
      health.status = "Degraded"
    end
    return health
  end
end
return health
